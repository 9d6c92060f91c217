"""`python -m maintenance_assets.cli`."""

import sys

from maintenance_assets.cli.main import main

sys.exit(main())
