"""`pavane run`: a model talks. Text goes to stdout as it comes, everything else to stderr."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pavane.cli.console import say, show_text, watching
from pavane.cli.context import ContextOption
from pavane.cli.contracts import DEFAULT_CONTRACT, DEFAULT_WEIGHTS, WEIGHTS_HELP, as_contract, as_weights
from pavane.reject import ArgumentReject

if TYPE_CHECKING:
    from pavane.artefact import Artefact


def run(
    model_name: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A name from `pavane models`, or the path of a GGUF file.")
    ] = None,
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="What to say to the model.")] = "",
    max_tokens: Annotated[int, typer.Option(min=1, help="At most so many tokens.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 always takes the likeliest token.")] = 0.0,
    top_k: Annotated[int, typer.Option(help="Draw from the k likeliest tokens only (0: all).")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the likeliest tokens of this total probability.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal text.")] = 0,
    context: ContextOption = None,
    cores: Annotated[int | None, typer.Option(help="Use so many cores (default: all).")] = None,
    contract: Annotated[
        str, typer.Option(help="float, or int8 (activations rounded in blocks of 32).")
    ] = DEFAULT_CONTRACT,
    weights: Annotated[str, typer.Option(help=WEIGHTS_HELP)] = DEFAULT_WEIGHTS,
    raw: Annotated[bool, typer.Option("--raw", help="Give the prompt as it is, without the chat template.")] = False,
) -> None:
    """Compile a model for this machine, run it, and stream its text."""
    from pavane.cli.sources import chip, model
    from pavane.frontends.chat import ChatTemplate
    from pavane.frontends.sampling import Sampler
    from pavane.frontends.tokenizer import StreamDecoder, read_tokenizer
    from pavane.generate import Session, check_prompt
    from pavane.targets.host import available_cores

    if not prompt:
        raise ArgumentReject("the prompt is empty", remedy="give --prompt a text")
    if not prompt.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in prompt):
        raise ArgumentReject("the prompt is no text", needed="UTF-8", remedy="convert it, with iconv say")
    sampler = Sampler(temperature, top_k, top_p, seed)
    wanted, stored, target = as_contract(contract), as_weights(weights), chip("host", cores)
    if target.sites > available_cores():
        say(f"{target.sites} workers take turns on {available_cores()} cores: fewer are faster")
    with watching() as watch:
        start = time.perf_counter()
        loaded = model(model_name, wanted, context, watch, stored)
        deployed = loaded.deployed
        tokenizer = read_tokenizer(deployed.path, deployed.metadata)
        text = prompt
        if not raw:
            template = ChatTemplate(deployed.path, deployed.metadata, tokenizer)
            text = template.render([{"role": "user", "content": prompt}])
        ids = tokenizer.encode(text)
        check_prompt(ids, loaded, loaded.context)
        session = Session(loaded, target, observer=watch.passes)
        ready_seconds = time.perf_counter() - start
    stream, shown = StreamDecoder(tokenizer), 0
    with session:
        for token in session.generate(ids, sampler, max_tokens, tuple(tokenizer.end_ids)):
            show_text(stream.push(token))
            shown += 1
    show_text(stream.finish() + "\n")
    if shown == max_tokens:
        say(f"stopped at --max-tokens {max_tokens}: the text may go on")
    elif session.position >= loaded.context:
        say(f"stopped at --context {loaded.context}: its positions are full")
    timing = session.timing
    say(f"prompt {timing.prompt_tokens} tokens, {timing.prompt_rate:.1f} tokens/s")
    say(f"generation {timing.tokens} tokens, {timing.rate:.1f} tokens/s")
    if len(session.waited) > 1 and timing.tokens > 1:
        parts = ", ".join(f"{part:.0%}" for part in session.waited)
        say(f"of the generation's time the {len(session.waited)} workers waited for each other {parts}")
    say(f"ready after {ready_seconds:.1f} s on {target.description}")
    for artefact in (session.decode, *session.prompts.values()):
        say(f"certified: {_certified(artefact)}")


def _certified(artefact: Artefact) -> str:
    program = artefact.program
    certificate = program.certificate.program[:16] if program.certificate else "none"
    ranges = ", ".join(f"{s.name} {s.lo}..{s.hi}" for s in program.symbols)
    sections, shapes = len(program.instances), len(program.shapes)
    return (
        f"{program.name}, {sections} section{'' if sections == 1 else 's'} of {shapes} shape"
        f"{'' if shapes == 1 else 's'}, for every {ranges}; certificate {certificate}"
    )
