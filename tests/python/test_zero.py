"""The package: bits, arrays, failures, checkpoints, processes."""

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
        self.refused(TypeError, "does not take 'big'", with_options(bucket_bytes="big"))
        self.refused(zero.InvalidArgument, "adamw, sgd", with_options(optimizer="adam"))
        self.refused(zero.InvalidArgument, "float32, bfloat16", with_options(dtype="float64"))
        self.refused(zero.InvalidArgument, "no stage 7", with_options(stage=7))
        self.refused(TypeError, "'beta[12]' meant", with_options(groups=[{"beta": 1.0}]))

    def test_arrays(self):
        def with_data(data):
            return lambda ranks: zero.Engine(ranks, [zero.Parameter("w", (2, 2), data=data)])
        self.refused(ValueError, "data of 'w' is not an array of float32", with_data(np.ones((2, 2))))
        self.refused(ValueError, "has 3 elements", with_data(np.ones(3, np.float32)))
        self.refused(ValueError, "pass a copy", with_data(np.ones((2, 4), np.float32)[:, ::2]))

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
            self.assertIn("rank 1: LookupError: no data", text)

    def test_an_exception_of_an_update_is_raised(self):
        def body(ranks):
            with zero.Engine(ranks, model()) as engine:
                engine.begin_step()
                add_gradients(engine, 0, 0)
                engine.step(1.0, lambda part: part.nothing)
        self.refused(AttributeError, "nothing", body)

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
                    kept = arrays.weights["matrix"]
                before = kept.copy()
            self.assertIsNotNone(engine._handle)
            np.testing.assert_array_equal(kept, before)
            del kept
            engine.close()
            self.assertIsNone(engine._handle)
        zero.run_ranks(1, body)

    def test_the_number_of_ranks(self):
        with self.assertRaisesRegex(zero.InvalidArgument, "ranks"):
            zero.run_ranks(0, train)

    def test_an_interrupt_ends_the_ranks(self):
        program = ("import zero\n"
                   "def body(ranks):\n"
                   "    if ranks.rank == 0: print('ready', flush=True)\n"
                   "    while True: ranks.sum(1.0)\n"
                   "zero.run_ranks(2, body)\n")
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        with process:
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("KeyboardInterrupt", errors)


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
                          "print(zero.run_mpi(lambda ranks: test_zero.train(ranks, stage=3))[0]"
                          ".hex())\n" % os.path.dirname(os.path.abspath(__file__)))
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
                          "    print(type(error).__name__, 'no data' in str(error), flush=True)\n")
        self.assertEqual(sorted(run.stdout.split("\n")),
                         ["", "Aborted True", "Aborted True", "LookupError True"], run.stderr)


if __name__ == "__main__":
    unittest.main()
