"""The package: bits, arrays, failures, checkpoints, processes."""

import copy
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import zero

SHAPES = {"matrix": (5, 7), "bias": 5, "empty": 0, "last": (3, 5)}
UNITS = {"matrix": 0, "bias": 0, "empty": 1, "last": 1}
try:
    import ml_dtypes  # noqa: F401
    DTYPES = ["float32", "float16", "bfloat16"]
except ImportError:
    DTYPES = ["float32", "float16"]


def model(dtype="float32"):
    rng = np.random.default_rng(3)
    kind = zero._dtype(dtype)
    return [zero.Parameter(name, shape, UNITS[name],
                           data=rng.integers(-8, 8, shape).astype(kind) / kind.type(8))
            for name, shape in SHAPES.items()]


def add_gradients(engine, rank, step):
    """Integers, so that sums are exact in every order."""
    for unit in (1, 0):
        with engine.open(unit, gradients=True) as arrays:
            for name, gradient in arrays.gradients.items():
                values = np.random.default_rng([rank, step, len(name)]).integers(-4, 4, gradient.shape)
                gradient += values.astype(gradient.dtype)


def train(ranks, steps=4, begin=0, **options):
    with zero.Engine(ranks, model(options.get("dtype", "float32")), **options) as engine:
        for step in range(begin, steps):
            engine.begin_step(2)
            add_gradients(engine, ranks.rank, 2 * step)
            engine.next_micro_step()
            add_gradients(engine, ranks.rank, 2 * step + 1)
            engine.step(0.01)
        report = engine.report()
        assert report.step_count == steps - begin and not report.is_skipped
        assert engine.memory().total_bytes > 0
        return engine.gather().tobytes(), engine.get("last")


class Training(unittest.TestCase):
    def test_stages_have_equal_bits(self):
        for dtype in DTYPES:
            for world in (1, 2, 3, 5):
                results = [zero.run_ranks(world, lambda ranks: train(
                    ranks, stage=stage, dtype=dtype, initial_loss_scale=1.0, clip_norm=1.0,
                    schedule="every_micro_step")) for stage in range(4)]
                for ranks in results:
                    for block, last in ranks:
                        self.assertEqual(block, results[0][0][0])
                        self.assertEqual(last.shape, (3, 5))
            start = b"".join(p.data.tobytes() for p in model(dtype))
            self.assertNotEqual(results[0][0][0], start)

    def test_update_of_the_program_is_that_of_the_library(self):
        def body(ranks, own):
            with zero.Engine(ranks, model(), stage=2, optimizer="sgd", momentum=0.0,
                             weight_decay=0.0) as engine:
                def update(part):
                    part.weights -= np.float32(part.learning_rate) * part.gradients
                    self.assertEqual(len(part.states), 1)
                    self.assertIn(part.parameter, SHAPES)
                for step in range(3):
                    engine.begin_step()
                    add_gradients(engine, ranks.rank, step)
                    engine.step(0.25, update if own else None)
                return engine.gather().tobytes()
        expected = zero.run_ranks(2, lambda ranks: body(ranks, False))
        self.assertEqual(zero.run_ranks(2, lambda ranks: body(ranks, True)), expected)

    def test_groups_and_factors(self):
        def body(ranks):
            parameters = [zero.Parameter("a", 4), zero.Parameter("b", 4, group=1)]
            with zero.Engine(ranks, parameters, optimizer="sgd", momentum=0.0, weight_decay=0.0,
                             groups=[{}, {"learning_rate_factor": 0.5}],
                             group_norms=1) as engine:
                for factor in (0.5, 0.25):
                    engine.set_learning_rate_factor(1, factor)
                    engine.begin_step()
                    with engine.open(0, gradients=True) as arrays:
                        arrays.gradients["a"] += 1
                        arrays.gradients["b"] += 2
                    engine.step(1.0)
                return engine.get("a").tolist(), engine.get("b").tolist(), engine.group_norms()
        for a, b, norms in zero.run_ranks(2, body):
            self.assertEqual((a, b, norms), ([-2.0] * 4, [-1.5] * 4, [2.0, 4.0]))

    def test_block_of_the_program(self):
        def body(ranks):
            block, gradients = np.ones(6, np.float32), np.zeros(6, np.float32)
            parameters = [zero.Parameter(name, 3, data=block[i:i + 3], gradient=gradients[i:i + 3])
                          for name, i in (("a", 0), ("b", 3))]
            with zero.Engine(ranks, parameters, stage=1, optimizer="sgd", momentum=0.0,
                             weight_decay=0.0, block=block) as engine:
                engine.begin_step()
                gradients[:] = 1 + ranks.rank
                with engine.open(0, gradients=True, overwritten=True):
                    pass
                engine.step(1.0)
                engine.report()
            return block.tolist()
        self.assertEqual(zero.run_ranks(2, body), [[-0.5] * 6] * 2)

    def test_resumes_with_other_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            def first(ranks):
                with zero.Engine(ranks, model(), stage=3) as engine:
                    engine.set("bias", np.arange(5))
                    engine.save(folder, 41)
                    return engine.gather().tobytes()
            try:
                saved = zero.run_ranks(2, first)[0]
            except zero.Unsupported:
                self.skipTest("the library was built without checkpoints")
            self.assertTrue(zero.has_checkpoint(folder))
            self.assertFalse(zero.has_checkpoint(folder + "/none"))

            def second(ranks):
                with zero.Engine(ranks, model(), stage=1) as engine:
                    return engine.load(folder), engine.gather().tobytes(), engine.get("bias")[4]
            self.assertEqual(zero.run_ranks(3, second), [(41, saved, 4.0)] * 3)

    def test_plan(self):
        plans = [zero.plan([zero.Parameter("w", (64, 64))], 4, stage=stage) for stage in range(4)]
        self.assertEqual([plan.optimizer_state for plan in plans], [8 * 4096] + [8 * 1024] * 3)
        self.assertEqual([plan.parameters for plan in plans], [4 * 4096] * 3 + [4 * 1024])


class Mistakes(unittest.TestCase):
    def refused(self, kind, part, body, world=2):
        with self.assertRaisesRegex(kind, part):
            zero.run_ranks(world, body)

    def test_options(self):
        def with_options(**options):
            return lambda ranks: zero.Engine(ranks, model(), **options)
        self.refused(TypeError, "'clip_norm' meant", with_options(clip_nrom=1.0))
        self.refused(TypeError, "does not take 'big'", with_options(clip_norm="big"))
        self.refused(zero.InvalidArgument, "adamw, sgd", with_options(optimizer="adam"))
        self.refused(zero.InvalidArgument, "float32, bfloat16", with_options(dtype="float64"))
        self.refused(zero.InvalidArgument, "no stage 7", with_options(stage=7))
        self.refused(TypeError, "'beta[12]' meant", with_options(groups=[{"beta": 1.0}]))

    def test_arrays(self):
        def with_data(data):
            return lambda ranks: zero.Engine(ranks, [zero.Parameter("w", (2, 2), data=data)])
        self.refused(ValueError, "data of 'w' is not an array of float32", with_data(np.ones((2, 2))))
        self.refused(ValueError, r"shape \(4,\), and its parameter \(2, 2\)",
                     with_data(np.ones(4, np.float32)))
        self.refused(ValueError, "pass a copy", with_data(np.ones((2, 4), np.float32)[:, ::2]))
        for shape in (-1, (3, -1), 2.5, (1 << 40, 1 << 40), "ab"):
            with self.assertRaisesRegex(ValueError, "'w'"):
                zero.Parameter("w", shape)
        for arguments in (("a\0b", 1), (None, 1)):
            with self.assertRaisesRegex(ValueError, "name of a parameter"):
                zero.Parameter(*arguments)
        with self.assertRaisesRegex(ValueError, "one of the two"):
            zero.Parameter("w", 1, 0, units=[0, 1])

        def writes(ranks):
            with zero.Engine(ranks, model()) as engine, engine.open(0) as arrays:
                arrays.weights["bias"][0] = 1
        self.refused(ValueError, "read-only", writes)

    def test_a_failure_of_one_rank_is_raised_and_ends_the_others(self):
        seen = []

        def body(ranks):
            if ranks.rank == 1:
                raise LookupError("no data")
            try:
                ranks.sum(1.0)
            except zero.Aborted as error:
                seen.append(str(error))
                raise
        self.refused(LookupError, "no data", body, 3)
        self.assertEqual(len(seen), 2)
        for text in seen:
            self.assertIn("LookupError: no data", text)
            self.assertEqual(text.count("rank 1"), 1)

    def test_an_exception_of_an_update_is_raised_and_reaches_the_others(self):
        seen = []

        def body(ranks):
            with zero.Engine(ranks, model()) as engine:
                engine.begin_step()
                add_gradients(engine, 0, 0)
                try:
                    engine.step(1.0, lambda part: {}[1] if ranks.rank == 1 else None)
                    ranks.sum(1.0)
                except zero.Aborted as error:
                    seen.append(str(error))
                    raise
        self.refused(KeyError, "1", body)
        self.assertEqual(len(seen), 1)
        self.assertIn("KeyError: 1", seen[0])

    def test_an_exception_without_a_text(self):
        class Silent(Exception):
            def __str__(self):
                raise ValueError

        def body(ranks):
            with zero.Engine(ranks, [zero.Parameter("w", ())]) as engine:
                engine.set("w", engine.get("w") + 1)
                self.assertEqual(engine.get("w"), 1)
                engine.begin_step()
                with engine.open(0, gradients=True):
                    pass
                engine.step(1.0, lambda part: fail())
        for failure in (Silent(), OSError("name\udcff")):
            def fail():
                raise failure
            with self.assertRaises(type(failure)):
                zero.run_ranks(2, body)

    def test_an_update_does_not_call_its_engine(self):
        for call in ("close", "cancel_step", "report", "begin_step"):
            def body(ranks):
                with zero.Engine(ranks, model()) as engine:
                    engine.begin_step()
                    add_gradients(engine, 0, 0)
                    engine.step(1.0, lambda part: getattr(engine, call)())
            self.refused(zero.OutOfOrder, "must not call its engine", body)

    def test_numbers_that_c_would_wrap(self):
        def body(ranks):
            with zero.Engine(ranks, model()) as engine:
                for call in (lambda: engine.begin_step(-1), lambda: engine.begin_step(2.0),
                             lambda: engine.open(-1), lambda: engine.open("matrix"),
                             lambda: engine.save("nowhere", -1), lambda: engine.get(9),
                             lambda: engine.set("matrix", np.ones((7, 5))),
                             lambda: ranks.sum((1 << 25) + 1), lambda: ranks.sum(None),
                             lambda: engine.open(0, overwritten=True)):
                    with self.assertRaisesRegex(zero.InvalidArgument, "zero: "):
                        call()
        zero.run_ranks(1, body)
        for options in ({"stage": (1 << 40) + 2}, {"bucket_bytes": -1}, {"bucket_bytes": "big"}):
            self.refused(zero.InvalidArgument, next(iter(options)),
                         lambda ranks: zero.Engine(ranks, model(), **options))
        for call in (lambda: zero.run_ranks(2.0, train), lambda: zero.run_ranks(train, 2),
                     lambda: zero.run_ranks(2, None), lambda: zero.Engine(None, model())):
            self.assertRaises(zero.InvalidArgument, call)

        async def never(ranks):
            pass
        self.refused(TypeError, "coroutine", never)
        self.refused(TypeError, "cannot be copied",
                     lambda ranks: copy.copy(zero.Engine(ranks, model())))

    def test_an_assignment_writes_into_the_array(self):
        def body(ranks):
            with zero.Engine(ranks, model(), optimizer="sgd", momentum=0, weight_decay=0) as engine:
                def update(part):
                    part.weights = part.weights - part.gradients
                engine.begin_step()
                with engine.open(0, gradients=True) as arrays:
                    arrays.gradients["bias"] = np.ones(5)
                    for values in (1.0, np.ones(3), np.ones((1, 5))):
                        with self.assertRaisesRegex(ValueError, "shape"):
                            arrays.gradients["bias"] = values
                    with self.assertRaisesRegex(KeyError, "unit 0 does not have it"):
                        arrays.weights["last"]
                    with self.assertRaises(AttributeError):
                        arrays.gradients = {}
                with self.assertRaisesRegex(KeyError, "has ended"):
                    arrays.weights["bias"]
                with engine.open(0) as arrays, self.assertRaisesRegex(KeyError, "gradients=True"):
                    arrays.gradients["bias"]
                with self.assertRaisesRegex(AttributeError, "with engine.open"):
                    engine.open(0).weights
                before = engine_bias
                engine.step(1.0, update)
                return (before - engine.get("bias")).tolist()
        engine_bias = model()[1].data
        self.assertEqual(zero.run_ranks(2, body), [[1.0] * 5] * 2)

    def test_order(self):
        def body(ranks):
            engine = zero.Engine(ranks, model())
            with self.assertRaisesRegex(zero.OutOfOrder, r"begin_step\(\)") as caught:
                engine.step(1.0)
            self.assertNotIn("zero_", str(caught.exception))
            with self.assertRaisesRegex(zero.InvalidArgument, "no parameter 'none'"):
                engine.get("none")
            engine.close()
            with self.assertRaisesRegex(zero.OutOfOrder, "closed"):
                engine.begin_step()
        zero.run_ranks(1, body)

    def test_an_array_keeps_the_memory_of_a_closed_engine(self):
        def body(ranks):
            with zero.Engine(ranks, model(), stage=1) as engine:
                with engine.open(0) as arrays:
                    kept = arrays.weights["matrix"].reshape(35)[3:]
                    with self.assertRaisesRegex(zero.OutOfOrder, "inside the block of unit 0"):
                        engine.close()
                before = kept.copy()
            self.assertIsNotNone(engine._handle)
            np.testing.assert_array_equal(kept, before)
            del kept
            engine.close()
            self.assertIsNone(engine._handle)
        zero.run_ranks(1, body)

    def test_arrays_that_outlive_their_rank_do_not_dangle(self):
        parts = []

        def body(ranks):
            with zero.Engine(ranks, [zero.Parameter("w", 1 << 22)], stage=3) as engine:
                engine.begin_step()
                with engine.open(0, gradients=True) as unit:
                    gradient = unit.gradients["w"]
                engine.step(0.1, lambda part: parts.append((part.weights, part.states[0])))
                with engine.open(0) as unit:
                    return unit.weights["w"], gradient
        with self.assertWarnsRegex(RuntimeWarning, "copy the arrays"):
            results = zero.run_ranks(2, body)
        for arrays in results + parts:
            for array in arrays:
                float(array.sum())
                if array.flags.writeable:
                    array[:] = 1

        def fails(ranks):
            engine = zero.Engine(ranks, [zero.Parameter("w", 1 << 22)])
            with engine.open(0) as unit:
                kept = unit.weights["w"]
                raise LookupError(kept.size)
        try:
            zero.run_ranks(2, fails)
        except LookupError as error:
            frame = error.__traceback__
        while frame.tb_next is not None:
            frame = frame.tb_next
        self.assertEqual(frame.tb_frame.f_locals["kept"].sum(), 0)

    def test_the_number_of_ranks(self):
        with self.assertRaisesRegex(zero.InvalidArgument, "ranks"):
            zero.run_ranks(0, train)

    def test_an_interrupt_ends_the_ranks(self):
        program = ("import zero\n"
                   "calls = []\n"
                   "def body(ranks):\n"
                   "    if ranks.rank == 0: print('ready', flush=True)\n"
                   "    while True: calls.append(ranks.sum(1.0))\n"
                   "try:\n"
                   "    zero.run_ranks(2, body)\n"
                   "except KeyboardInterrupt:\n"
                   "    count = len(calls)\n"
                   "    zero.run_ranks(2, lambda ranks: [ranks.sum(1.0) for _ in range(10)])\n"
                   "    print(len(calls) - count)\n")
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        with process:
            self.addCleanup(process.kill)
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, output), (0, "0\n"), errors)  # no rank went on


@unittest.skipUnless(os.environ.get("ZERO_MPI_LAUNCH"), "no MPI")
class Processes(unittest.TestCase):
    def launch(self, program, world=3):
        return subprocess.run([*os.environ["ZERO_MPI_LAUNCH"].split(), "-n", str(world),
                               sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=120)

    def test_processes_have_the_bits_of_threads(self):
        expected = zero.run_ranks(3, lambda ranks: train(ranks, stage=3))[0][0].hex()
        run = self.launch("import sys; sys.path.insert(0, %r)\n"
                          "import test_zero, zero\n"
                          "block, _ = zero.run_mpi(lambda ranks: test_zero.train(ranks, stage=3))\n"
                          "sys.stdout.write(block.hex() + '\\n')\n" % os.path.dirname(os.path.abspath(__file__)))
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout.split(), [expected] * 3)

    def test_a_failure_of_one_process_reaches_the_others(self):
        run = self.launch("import sys, zero\n"
                          "def body(ranks):\n"
                          "    if ranks.rank == 1: raise LookupError('no data')\n"
                          "    ranks.sum(1.0)\n"
                          "try:\n"
                          "    zero.run_mpi(body, 30)\n"
                          "except (LookupError, zero.Aborted) as error:\n"
                          "    sys.stdout.write(f\"{type(error).__name__} {'no data' in str(error)}\\n\")\n")
        self.assertEqual(sorted(run.stdout.split("\n")),
                         ["", "Aborted True", "Aborted True", "LookupError True"], run.stderr)


if __name__ == "__main__":
    unittest.main()
