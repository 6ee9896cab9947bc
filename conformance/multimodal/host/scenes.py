# SPDX-License-Identifier: Apache-2.0
"""Scenes that the scheduler is put into, one or several for each rule of an engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import attrs

from conformance.hosts import Sight
from conformance.multimodal.host.stage import Asked, Media, Stage, alone, configuration

Scene = Callable[[Sight], None]

#: Items whose rows stand side by side, and with text between them.
_A, _B, _C, _D = Media("a", 6), Media("b", 5, 1), Media("c", 8), Media("d", 3, 2)

#: Items at the very beginning and end, behind each other, twice, and far apart.
PROMPTS = (
    Asked("begins", (_A, 3)),
    Asked("ends", (4, _B)),
    Asked("side by side", (1, _A, _B, 2)),
    Asked("twice", (2, _C, 3, _C, 1)),
    Asked("far apart", (1, _D, 9, _A, 9, _C, 1), 4),
)


def _answered(see: Sight, stage: Stage, *, to: str) -> None:
    """Every request of a stage was answered, with the tokens that it gets by itself."""
    for name, request in stage.asked.items():
        see(name in stage.done, f"{to}, request {name!r} is never answered")
        wanted = alone(request)
        got = stage.outputs[name]
        see(got == wanted, f"{to}, request {name!r} is answered {got} instead of {wanted}")


def _together(step: int, budget: int, room: int) -> Stage:
    """Play all prompts at once."""
    stage = Stage.make(step=step, budget=budget, room=room)
    stage.ask(*PROMPTS)
    stage.run()
    return stage


def _plays() -> Iterator[tuple[str, Stage]]:
    """Yield stages on which all prompts were played, each with other limits."""
    for step, (budget, room) in itertools.product((3, 5, 8, 13, 64), ((8, 8), (9, 14), (64, 64))):
        told = f"with {step} tokens and {budget} rows in a step, and room for {room} rows"
        yield told, _together(step, budget, room)


def rows_are_there(see: Sight) -> None:
    """ME-01: by steps of every length, each prompt by itself and all at once."""
    for prompt in PROMPTS:
        for step in range(1, len(prompt.tokens()) + 2):
            stage = Stage.make(step=step)
            stage.ask(prompt)
            stage.run()
            told = f"in steps of {step} tokens"
            for each in stage.steps:
                see(not each.missing, f"{told}, {'; '.join(each.missing)}")
            _answered(see, stage, to=told)
    for told, stage in _plays():
        for each in stage.steps:
            see(not each.missing, f"{told}, {'; '.join(each.missing)}")


def encoded_once(see: Sight) -> None:
    """ME-02: the same item for several requests, at once and one after the other."""
    for told, stage in _plays():
        for each in stage.steps:
            see(not each.again, f"{told}, item {each.again[:1]} is encoded while it is cached")
            names = [media.name for _, media in each.encoded]
            see(len(names) == len(set(names)), f"{told}, a step encodes {names}")
    stage = Stage.make()
    for number in range(3):
        stage.ask(Asked(f"request {number}", (number + 1, _A, 2)))
        stage.run()
    count = sum(len(each.encoded) for each in stage.steps)
    see(count == 1, f"for three requests one after the other an item is encoded {count} times")


def in_prefill(see: Sight) -> None:
    """ME-03: whatever a step encodes, it computes some placeholders of."""
    for told, stage in _plays():
        for each in stage.steps:
            for name, media in each.encoded:
                start, end = each.scheduled.get(name, (0, 0))
                places = [at for one, at in stage.asked[name].places() if one == media]
                used = any(start < at + media.length and at < end for at in places)
                where = f"positions {start} to {end - 1} of request {name!r}"
                see(used, f"{told}, item {media.name} is encoded in a step that computes {where}")


def waits_whole(see: Sight) -> None:
    """ME-04: rows are counted by step and by room."""
    for step, (budget, room) in itertools.product((5, 13, 64), ((8, 8), (9, 14), (14, 20))):
        stage = _together(step, budget, room)
        told = f"with {budget} rows in a step and room for {room}"
        for each in stage.steps:
            rows = sum(media.rows for _, media in each.encoded)
            see(rows <= budget, f"{told}, a step encodes {rows} rows")
            held = sum(each.cached.values())
            see(held <= room, f"{told}, {held} rows are held")


def served(see: Sight) -> None:
    """ME-05: items as large as the budget, and crowds of them."""
    for told, stage in _plays():
        _answered(see, stage, to=told)
    for size, step in itertools.product((1, 5, 9), (1, 4, 40)):
        crowd = [Asked(str(n), (n % 3 + 1, Media(f"{size}/{n}", size), 2)) for n in range(6)]
        stage = Stage.make(step=step, budget=size, room=size)
        stage.ask(*crowd)
        stage.run()
        _answered(see, stage, to=f"with room for one item of {size} rows")


def stay_while_needed(see: Sight) -> None:
    """ME-06: an item is let go when its last placeholder is computed, and not before."""
    for step, room in itertools.product((2, 3, 5), (8, 11, 14)):
        stage = _together(step, 8, room)
        computed: dict[str, int] = {}
        told = f"with {step} tokens in a step and room for {room} rows"
        for each in stage.steps:
            for name, end in computed.items():
                for media, at in stage.asked[name].places():
                    half = at < end < at + media.length
                    see(
                        not (half and media.name in each.freed),
                        f"{told}, item {media.name} leaves while request {name!r} is at {end}",
                    )
            computed |= {name: end for name, (_, end) in each.scheduled.items()}


def profiled(see: Sight) -> None:
    """ME-11: items of every size, with the budget that vLLM makes of the model."""
    from vllm.multimodal import MULTIMODAL_REGISTRY
    from vllm.multimodal.encoder_budget import MultiModalBudget

    config = configuration()
    limits = config.scheduler_config
    usual = limits.max_num_encoder_input_tokens, limits.encoder_cache_size
    try:
        for tokens in (256, 1024, 1600):
            limits.max_num_encoder_input_tokens = limits.encoder_cache_size = tokens
            budget = MultiModalBudget(config, MULTIMODAL_REGISTRY, enable_cache=False)
            (most,) = budget.mm_max_toks_per_item.values()
            several = len(budget.get_dummy_encoder_profile_inputs())
            stage = Stage.make(step=4096, budget=None, room=None, blocks=4000)
            stage.ask(*(Asked(str(n), (1, Media(f"largest {n}", most), 1), 1) for n in range(5)))
            stage.run()
            for each in stage.steps:
                see(
                    len(each.encoded) <= several,
                    f"with {tokens} tokens in a step {len(each.encoded)} of the largest items are "
                    f"encoded at once, and {several} were profiled",
                )
            see(stage.done == stage.asked.keys(), f"{most} rows, the most of an item, never fit")
            # The front end lets in what the cache, and a prompt, have room for.
            room = min(budget.encoder_cache_size, config.model_config.max_model_len - 4)
            for rows in (1, most // 2, most - 1, most, (most + room) // 2, room):
                stage = Stage.make(step=4096, budget=None, room=None, blocks=4000)
                stage.ask(Asked("grown", (1, Media("grown", rows), 1), 1))
                stage.run()
                see(bool(stage.done), f"an item of {rows} rows, which is let in, never fits")
    finally:
        limits.max_num_encoder_input_tokens, limits.encoder_cache_size = usual


def _second(first: Asked, second: Asked) -> Stage:
    """Play a request, and then another that begins like it."""
    stage = Stage.make(prefixes=True)
    stage.ask(first)
    stage.run()
    stage.steps.clear()
    stage.ask(second)
    stage.run()
    return stage


def prefix_again(see: Sight) -> None:
    """ME-07: the same item, with other text behind it."""
    for prompt in PROMPTS:
        again = attrs.evolve(prompt, name="again", parts=(*prompt.parts, 5))
        stage = _second(prompt, again)
        least = (len(prompt.tokens()) // 4 - 1) * 4
        found = stage.reused["again"]
        see(found >= least, f"of the prompt {prompt.name!r} {found} positions are used again")
        encoded = [media.name for each in stage.steps for _, media in each.encoded]
        see(not encoded, f"after the prompt {prompt.name!r} {encoded} are encoded again")


def prefix_of_another(see: Sight) -> None:
    """ME-08: another item of the same size, and the same one elsewhere."""
    for first, second in (
        ((2, _A, 6), (2, Media("other content", 6), 6)),
        ((2, _A, 6), (2, Media("a with other options", 6), 6)),
        ((9, _A, 1, _C, 9), (9, _A, 1, Media("other", 8), 9)),
        ((9, _A, _C, 9), (9, Media("a and a piece", 7), Media("piece", 7), 9)),
        ((1, Media("long", 24), 3), (1, Media("another", 24), 3)),
        # Behind a placeholder that somebody typed the same item begins later, in the same tokens.
        ((1, _A, -1, 9), (1, -1, _A, 9)),
    ):
        stage = _second(Asked("first", first), Asked("second", second))
        wrong = [each.wrong[0] for each in stage.steps if each.wrong]
        see(not wrong, "; ".join(wrong))
        _answered(see, stage, to="after another with the same tokens")


def preempted(see: Sight) -> None:
    """ME-09: too few blocks for all, with and without prefixes, and little room for rows."""
    interrupted = 0
    for prefixes, room, blocks in itertools.product((False, True), (8, 64), (11, 13, 16)):
        stage = Stage.make(step=16, budget=8, room=room, blocks=blocks, prefixes=prefixes)
        stage.ask(*(attrs.evolve(one, outputs=12) for one in PROMPTS[:4]))
        stage.run()
        interrupted += len(stage.preempted)
        told = f"with {blocks} blocks and room for {room} rows"
        for each in stage.steps:
            problems = (*each.wrong, *each.missing)
            see(not problems, f"{told}, {'; '.join(problems)}")
        _answered(see, stage, to=told)
    see(interrupted, "no request is ever preempted")


def aborted(see: Sight) -> None:
    """ME-10: in each step of a prefill, and before it."""
    for steps, number in itertools.product(range(9), (1, 2)):
        stage = Stage.make(step=4, budget=8, room=14)
        stage.ask(*PROMPTS[2 : 2 + number])
        stage.run(until=steps)
        for name in list(stage.asked):
            if name not in stage.done:
                stage.abort(name)
                del stage.asked[name]
        stage.ask(Asked("next", (1, Media("one", 7), 1, Media("all", 7), 2)))
        stage.run()
        _answered(see, stage, to=f"after requests that were aborted in step {steps}")


SCENES: Mapping[str, Scene] = {
    "ME-01": rows_are_there,
    "ME-02": encoded_once,
    "ME-03": in_prefill,
    "ME-04": waits_whole,
    "ME-05": served,
    "ME-06": stay_while_needed,
    "ME-07": prefix_again,
    "ME-08": prefix_of_another,
    "ME-09": preempted,
    "ME-10": aborted,
    "ME-11": profiled,
}
