# SPDX-License-Identifier: Apache-2.0
"""A hundred sandboxes at once, each with a copy of one saved interpreter, do real work."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from native import ledger
from warm import need_libraries, warm_home

from cay import Sandbox

PATIENCE = 600
COPIES = 100
MEMORY = "256M"
PRIVATE_KIB = 64 << 10  # of an interpreter after its work; 28 MiB were measured

WORK = """
import gc, os, subprocess, threading
assert gc.get_freeze_count() > 0, 'not a copy'
import numpy, pandas, matplotlib.pyplot as plt

# BLAS, whose threads the copy starts anew
generator = numpy.random.default_rng(NUMBER)
a = generator.random((300, 300))
assert numpy.allclose(a @ numpy.linalg.inv(a), numpy.eye(300), atol=1e-6)
b = numpy.linalg.solve(a, a @ numpy.arange(300.0))
assert numpy.allclose(b, numpy.arange(300.0), atol=1e-6)
assert (numpy.ones((400, 400)) @ numpy.ones((400, 400))).sum() == 64e6
assert abs(numpy.linalg.svd(numpy.diag([3.0, 2, 1]))[1] - [3, 2, 1]).max() < 1e-12
drawn = float(numpy.random.random())

frame = pandas.DataFrame({'key': ['a', 'b'] * 500, 'value': range(1000)})
sums = frame.groupby('key').value.sum()
assert sums.to_dict() == {'a': 249500, 'b': 250000}
merged = frame.merge(pandas.DataFrame({'key': ['a'], 'more': [NUMBER]}), on='key')
assert len(merged) == 500 and set(merged.more) == {NUMBER}
frame.to_csv('/tmp/frame.csv')
assert pandas.read_csv('/tmp/frame.csv', index_col=0).equals(frame)

results = []
def multiply(number):
    results.append(float((numpy.full((50, 50), number) @ numpy.eye(50)).sum()))
threads = [threading.Thread(target=multiply, args=[number]) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert sorted(results) == [0, 2500, 5000, 7500]

assert subprocess.run(['sh', '-c', 'echo $0', 'NUMBER'], capture_output=True).stdout == b'NUMBER\\n'
child = os.fork()
if child == 0:
    os._exit(int(numpy.linalg.solve(a, a @ numpy.ones(300)).sum().round()) % 251)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 300 % 251

figure, axes = plt.subplots()
axes.plot([1, 2, NUMBER])
figure.savefig('/tmp/figure.png')
assert open('/tmp/figure.png', 'rb').read(4) == b'\\x89PNG'
plt.close(figure)
private = next(line for line in open('/proc/self/status') if line.startswith('RssAnon'))
print(drawn, private.split()[1])
"""

PROCESSES = """
import multiprocessing
for method in 'fork', 'spawn':
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(abs, [-1, -2, NUMBER]) == [1, 2, NUMBER]
"""


def test_a_hundred_copies_at_once_do_real_work(tmp_path: Path) -> None:
    need_libraries()
    alive = threading.Barrier(COPIES)

    def work(number: int) -> str:
        try:
            return work_in_sandbox(number)
        except BaseException:
            alive.abort()
            raise

    def work_in_sandbox(number: int) -> str:
        with Sandbox.create(ephemeral=True, memory=MEMORY, pids=100) as sandbox:
            sandbox.execute_code(f"number = {number}")
            alive.wait(PATIENCE)  # every copy has started, and none has ended
            code = WORK + (PROCESSES if number % 4 == 0 else "")
            execution = sandbox.execute_code(
                code.replace("NUMBER", str(number)), timeout=PATIENCE
            )
            assert execution.error is None, execution.error
            assert sandbox.execute_code("number").text == str(number)
            drawn, private_kib = execution.stdout.split()
            assert int(private_kib) < PRIVATE_KIB
            return drawn

    with ledger(), warm_home(tmp_path / "home") as image:
        before = image.stat()
        with ThreadPoolExecutor(COPIES) as threads:
            drawn = list(threads.map(work, range(COPIES)))
        assert len(set(drawn)) == COPIES
        after = image.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
