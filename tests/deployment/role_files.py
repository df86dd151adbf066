"""What the role has from the schema: `make generate` writes it, by `python -m tests.deployment.role_files`."""

from pathlib import Path

from tests.lab.generate.configuration_table import entries

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "packaging" / "ansible" / "roles" / "coldplate"
VARS = ROLE / "vars" / "main.yml"
HEAD = "coldplate_restart_keys:\n"


def restart_keys() -> list[str]:
    """The keys that only a restart applies, without those below one that is in the list itself."""
    found: list[str] = []
    for entry in entries():
        above = any(entry.path.startswith(f"{each}.") for each in found)
        if entry.field.key is not None and entry.field.key.restart and not above:
            found.append(entry.path)
    return found


def contents() -> str:
    """The role's variables, with the current list of keys at their end."""
    by_hand = VARS.read_text(encoding="utf-8").partition(HEAD)[0]
    return by_hand + HEAD + "".join(f"  - {each}\n" for each in restart_keys())


if __name__ == "__main__":
    VARS.write_text(contents(), encoding="utf-8")
