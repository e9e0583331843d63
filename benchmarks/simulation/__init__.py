"""A model of a fleet: what TaskLib's statements cost, measured, put together by a discrete-event simulation.

costs ──▶ budget ──────────────────▶ predict      what a fleet of 1 to 1,000 nodes can do, and which bound is met first
  ▲   └─▶ engine ─▶ server ─▶ fleet ─▶ check      the same fleet simulated and run on this machine, compared
measuring                                         each cost, on this machine
"""
