"""What happened, as the actors and the table itself tell it, and a checker that decides the invariants I1 to I18.

Actors log what they asked for and what they were told (`actors.py`). A trigger, in test databases only, records every
transition with its token and transaction (`recording.py`). The checker (`checker.py`) needs nothing but these.
"""
