"""Of the options -DNAME=VALUE given, prints those that a build folder does not have; its own come in as meson introspects them."""
import json
import sys

have = {option["name"]: option["value"] for option in json.load(sys.stdin)}
for word in sys.argv[1:]:
    name, wanted = word.removeprefix("-D").split("=", 1)
    value = have.get(name)
    if wanted != (",".join(value) if isinstance(value, list) else str(value).lower()):
        print(word)
