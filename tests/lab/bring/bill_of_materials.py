"""Keeps of a bill of materials what belongs into the repository: components, versions, licences, and who needs whom."""

import json
import sys

bill = json.load(sys.stdin)
for component in [bill["metadata"]["component"], *bill["components"]]:
    component.pop("externalReferences", None)
bill["metadata"].pop("tools", None)
json.dump(bill, sys.stdout, indent=1, sort_keys=True)
print()
