import logging

logger = logging.getLogger("not ours")
