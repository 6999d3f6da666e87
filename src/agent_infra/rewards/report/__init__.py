"""Explanations: a record in, text out. Nothing is looked up or computed anew, so that what is shown is what was trained on.

markdown   a woven reward as Markdown, or as JSON
words      the languages
"""
