"""What a rule set makes of signals: facts in, a record out whose rows add up to its value.

matching       which rules fire, and with what amounts
contributions  signals and rules to a value
woven          the record, and WovenReward, its face
"""
