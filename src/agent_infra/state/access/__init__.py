"""Who may read and write, and when.

locks        one writer a session; one fsync for many writers
leases       who leads a session, with fencing tokens
permissions  what an agent may see and change
"""
