"""Shell completion: a script made from the parser itself, so that it knows every option."""

import argparse
from collections.abc import Iterator

_BASH = """\
# {program} completion for bash: eval "$({program} completion bash)"
_{name}() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" command="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${{COMP_WORDS[i]}}" in
      -*) ;;
      *)
        command="${{command:+$command }}${{COMP_WORDS[i]}}"
        [[ "$command" == {groups} ]] || break ;;
    esac
  done
  COMPREPLY=()
  case "$command/$previous" in
{choices}
  esac
  if [[ "$word" == -* || -z "$command" || "$command" == {groups} ]]; then
    case "$command" in
{options}
    esac
  else
    compopt -o default 2>/dev/null
  fi
}}
complete -F _{name} {program}
"""
_ZSH = """\
# {program} completion for zsh: eval "$({program} completion zsh)"
autoload -U +X bashcompinit && bashcompinit
"""
Commands = list[tuple[str, argparse.ArgumentParser]]


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """A script to be evaluated by that shell."""
    program = parser.prog
    commands: Commands = [("", parser), *_commands(parser, "")]
    groups = [name for name, one in commands if name and _subparsers(one)]
    bash = _BASH.format(
        program=program,
        name=program.replace("-", "_"),
        groups="|".join(groups) if len(groups) == 1 else f"@({'|'.join(groups)})",
        choices="\n".join(_choices(commands)),
        options="\n".join(
            f'      "{name}") COMPREPLY=($(compgen -W "{_words(one)}" -- "$word")) ;;'
            for name, one in commands
        ),
    )
    return bash if shell == "bash" else _ZSH.format(program=program) + bash


def _commands(
    parser: argparse.ArgumentParser, above: str
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for name, inner in _subparsers(parser).items():
        full = f"{above} {name}".strip()
        yield full, inner
        yield from _commands(inner, full)


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _words(parser: argparse.ArgumentParser) -> str:
    """Commands, options, and the words that a plain argument may be."""
    words: list[str] = list(_subparsers(parser))
    for action in parser._actions:
        words += action.option_strings
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction):
            words += [str(choice) for choice in action.choices or ()]
    return " ".join(words)


def _choices(commands: Commands) -> Iterator[str]:
    """What may follow an option."""
    for name, parser in commands:
        for action in parser._actions:
            if action.option_strings and action.choices:
                option, words = action.option_strings[-1], " ".join(map(str, action.choices))
                yield (
                    f'    "{name}/{option}") '
                    f'COMPREPLY=($(compgen -W "{words}" -- "$word")); return ;;'
                )
