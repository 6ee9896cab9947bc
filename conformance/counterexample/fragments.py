# SPDX-License-Identifier: Apache-2.0
"""Parts of programs that say the same of plugins of every generation.

Each is a text of :class:`string.Template`; ``served`` and ``go_through``, which it calls, are those
of the generation.
"""

from __future__ import annotations

#: Compares what :func:`served` returned under two conditions.
COMPARE = '''\
def compare(got: dict, expected: dict, where: str) -> None:
    """Say which row is another one, and end the program."""
    for name, row in expected.items():
        close = torch.isclose(got[name], row, rtol=1e-4, atol=1e-4, equal_nan=True)
        wrong = (~close).nonzero().flatten().tolist()
        if wrong:
            print(f"FAILS: {where} gives another row in {name}")
            for token in wrong[:8]:
                print(f"  token {token}: got {got[name][token]:.6g}, expected {row[token]:.6g}")
            print(f"  ({len(wrong)} of {len(row)} tokens differ)")
            sys.exit(1)


'''

#: ``validate_params`` on the class: on its own, in a process without instances, and not at all.
ADMISSION = '''\
def answers() -> list[str]:
    """Return what validate_params says to each request."""
    found = []
    for keywords in [*PARAMETERS, *INVALID]:
        try:
            Plugin.validate_params(SamplingParams(**copy.deepcopy(keywords)))
            found.append(f"{keywords} is accepted")
        except Exception as error:
            found.append(f"{keywords} is refused ({type(error).__name__}: {error})")
    return found


if not isinstance(inspect.getattr_static(Plugin, "validate_params"), (classmethod, staticmethod)):
    print("FAILS: validate_params is an ordinary method")
    print("expected: a class method; vLLM calls it on the class, where there are no instances")
    sys.exit(1)

# The engine has a process of its own, in which nobody calls validate_params.
path = Path(tempfile.mkdtemp(), "rows.pt")
pid = os.fork()
if pid == 0:
    try:
        torch.save(served(PARAMETERS), path)
    finally:
        os._exit(0)
os.waitpid(pid, 0)

# The front end's process: no instance has been made in it.
for keywords in PARAMETERS:
    got = SamplingParams(**copy.deepcopy(keywords))
    with suppress(Exception):
        Plugin.validate_params(got)
    if got != SamplingParams(**copy.deepcopy(keywords)):
        print(f"FAILS: validate_params wrote to the parameters of a request: {got}")
        print(f"expected: {SamplingParams(**copy.deepcopy(keywords))}")
        sys.exit(1)

before = answers()
rows_here = served(PARAMETERS)
for early, late in zip(before, answers(), strict=True):
    if early != late:
        print(f"FAILS: where no instance has been made, {early}")
        print(f"expected: as in a process with instances, {late}")
        sys.exit(1)
compare(torch.load(path), rows_here, "a process in which validate_params was not called")
print("OK: validate_params needs no instance, and nothing depends on it")
'''

#: Two processes that differ in what differs from rank to rank, as do the hashes of strings.
RANKS = """\
if len(sys.argv) > 1:
    # One rank: what differs from process to process, differs.
    torch.manual_seed(int(os.environ["RANK"]))
    torch.save(served(PARAMETERS), sys.argv[1])
    sys.exit(0)

folder = tempfile.mkdtemp()
paths = [Path(folder, f"rank{rank}.pt") for rank in range(2)]
ranks = [
    subprocess.Popen(
        [sys.executable, __file__, str(path)],
        env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONHASHSEED": seed},
    )
    for rank, (path, seed) in enumerate(zip(paths, ("1", "2")))
]
if any([rank.wait() for rank in ranks]):
    sys.exit("a rank has failed")
first, second = (torch.load(path) for path in paths)
compare(second, first, "the second of two ranks")
print("OK: two ranks compute the same rows")
"""

#: How much is held after each round of requests, of which none is left.
GROWTH = """\
logits = rows(*range(8))
tracemalloc.start()
# Where every request is greedy, an engine does not call apply of some plugins.
for applies in (True, False):
    serving, numbers, held = $new, itertools.count(), []
    with torch.inference_mode():
        for _ in range(5):
            go_through(serving, logits, numbers, applies)
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    growth = [after - before for before, after in zip(held, held[1:])]
    if min(growth[-3:]) > 0 and sum(growth[-3:]) > 4 * ROUND:
        print(f"FAILS: more memory is held after each {ROUND} requests, in bytes: {held}")
        print("expected: as much as before, once the requests have finished")
        sys.exit(1)
print("OK: no more memory is held when requests have come and gone")
"""
