"""The code location that Dagster loads.

It is empty so far: datasets declared as assets arrive in the next milestone.
"""

import dagster

defs = dagster.Definitions()
