#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"
#include "support/without_pieces.hpp"

#include <zero/comm/any_communicator.hpp>
#include <zero/host/delaying_queue.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/with_stage.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

// Gradients that are handed over with an owner are reduced where they lie, with the bits of their
// copies, and their owners live until then.

namespace zero::test::handed_over_test {

namespace {

using Copying = WithoutPieces<LoopbackCommunicator>;
using Any = AnyCommunicator<LoopbackCommunicator, Copying>;

/// How the gradients of a run are delivered.
enum class Delivery { written, copied, kept, mixed };

/// A model, and how it is trained.
struct Case {
    int world = 1;
    std::vector<std::size_t> elements; // by parameter; the units are pairs of them
    std::size_t bucket_bytes = 1024;
    std::size_t micro_steps = 1;
    bool is_one_micro_step = false;
    bool is_asynchronous = false;
    bool is_cancelled = false;   // the first step, in the middle
    bool are_some_unused = true; // ranks leave out some units
    std::optional<ReductionSchedule> schedule;
    std::uint64_t seed = 0;
};

constexpr std::uint64_t cancelled = 1000; // number of a micro-step

std::uint64_t mix_up(std::uint64_t a, std::uint64_t b) {
    return std::mt19937_64(a * 1000003 + b)();
}

Case make_case(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    constexpr std::array<std::size_t, 9> usual{0, 1, 2, 31, 64, 65, 257, 1009, 3001};
    Case c;
    c.world = std::array{1, 2, 3, 5}[below(4)];
    for (std::size_t count = 1 + below(20); count != 0; --count) {
        c.elements.push_back(usual[below(usual.size())]);
    }
    c.bucket_bytes = 256U << below(6);
    c.is_one_micro_step = below(3) == 0;
    c.micro_steps = c.is_one_micro_step ? 1 : 1 + below(3);
    c.is_asynchronous = below(2) == 0;
    c.is_cancelled = below(3) == 0;
    if (below(2) == 0) {
        c.schedule =
            below(2) == 0 ? ReductionSchedule::boundary : ReductionSchedule::every_micro_step;
    }
    c.seed = seed;
    return c;
}

/// What a rank returns: the bits of its weights, and the gradients whose owners lived.
struct Seen {
    std::vector<float> weights;
    std::size_t most_alive = 0; // during a backward pass
    std::size_t left_alive = 0; // after steps that wait
    std::size_t skipped = 0;    // steps
    bool is_planned = false;
};

/// A transient gradient that is overwritten when nothing owns it.
template <class T>
struct Transient {
    Transient(std::size_t elements, std::size_t shift, std::atomic<std::size_t>& count)
        : values(elements + 1), offset(shift), alive(&count) {
        ++*alive;
    }
    Transient(Transient const&) = delete;
    Transient& operator=(Transient const&) = delete;
    ~Transient() {
        std::fill(values.begin(), values.end(),
                  from_float<T>(std::numeric_limits<float>::quiet_NaN()));
        --*alive;
    }
    [[nodiscard]] std::span<T> span() { return {values.data() + offset, values.size() - 1}; }

    std::vector<T> values;
    std::size_t offset;
    std::atomic<std::size_t>* alive;
};

template <class T>
T value_of(std::uint64_t salt, std::uint64_t rank, std::size_t parameter, std::size_t i) {
    return (salt + i + rank) % 97 == 0 ? from_float<T>(-0.0F)
                                       : from_float<T>(noise(rank, parameter, i, salt % 1000));
}

template <int N, class T, class Communicator>
Seen train(Case const& c, Delivery delivery, Communicator& communicator) {
    using Stage = ZeroStage<N, Parameters<T>, SizeCappedBucketer, Sgd, Communicator>;
    auto const rank = static_cast<std::uint64_t>(communicator.rank());
    std::vector<typename Stage::Registration> parameters(c.elements.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].name = "p" + std::to_string(i);
        parameters[i].elements = c.elements[i];
        parameters[i].units = {i / 2};
    }
    HostMemoryResource memory;
    host::DelayingQueue queue(c.seed + rank, 50);
    host::DelayingQueue compute(c.seed + rank + 100, 50);
    typename Stage::Options options{.bucketer = {.bucket_bytes = c.bucket_bytes},
                                    .compute_queue = &compute,
                                    .communication_queue = &queue,
                                    .memory = &memory};
    options.asynchronous = c.is_asynchronous;
    options.extra_leases = 64;
    options.reduction.schedule = c.schedule;
    options.reduction.one_micro_step = c.is_one_micro_step;
    std::atomic<std::size_t> alive{0};
    Seen seen;
    {
        Stage engine(communicator, parameters, options);
        auto const deliver = [&](std::size_t unit, std::uint64_t salt) {
            auto const write = [&](std::size_t parameter, std::span<T> out, std::uint64_t extra) {
                for (std::size_t i = 0; i < out.size(); ++i) {
                    out[i] = value_of<T>(salt + extra, rank, parameter, i);
                }
            };
            if (delivery == Delivery::written) {
                auto const gradients = engine.gradients(unit, {}, false);
                for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                    HostBackend::synchronise(HostBackend::record(&compute));
                    write(parameter, gradients[parameter], 0);
                }
                return;
            }
            for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                bool const is_kept = delivery == Delivery::kept
                                     || (delivery == Delivery::mixed
                                         && mix_up(salt, rank * 100 + parameter) % 3 != 0);
                auto const gradient = std::make_shared<Transient<T>>(c.elements[parameter],
                                                                     (parameter + rank) % 2, alive);
                write(parameter, gradient->span(), 0);
                auto const added =
                    engine.hand_over(unit, parameter, gradient->span(), {},
                                     is_kept ? gradient : std::shared_ptr<void const>());
                if (delivery == Delivery::mixed && mix_up(salt, 7 + parameter) % 5 == 0) {
                    auto const more =
                        std::make_shared<Transient<T>>(c.elements[parameter], 0, alive);
                    write(parameter, more->span(), 1000);
                    engine.hand_over(unit, parameter, more->span(), {}, more).synchronise();
                }
                added.synchronise(); // complete at once if the engine keeps it
            }
        };
        auto const micro_step = [&](std::uint64_t number, MicroStep announced, std::size_t units) {
            engine.begin_micro_step(announced);
            for (std::size_t unit = engine.layout().units(); unit-- > 0 && units-- > 0;) {
                std::uint64_t const salt = mix_up(c.seed, number * 100 + unit);
                if (c.are_some_unused && number != cancelled && unit != 0
                    && mix_up(salt, N == 3 ? 0 : rank) % 5 == 0) {
                    continue; // its gradients are zeros
                }
                {
                    [[maybe_unused]] auto const weights = engine.acquire(unit);
                    deliver(unit, salt);
                }
                engine.gradients_ready(unit);
                seen.most_alive = std::max(seen.most_alive, alive.load());
            }
        };
        if (c.is_cancelled) {
            engine.begin_step();
            micro_step(cancelled, MicroStep::last, (engine.layout().units() + 1) / 2);
            engine.cancel_step();
        }
        for (std::uint64_t step = 0; step < 2; ++step) {
            engine.begin_step();
            for (std::size_t number = 0; number < c.micro_steps; ++number) {
                bool const is_last = number + 1 == c.micro_steps;
                micro_step(step * 10 + number, is_last ? MicroStep::last : MicroStep::more,
                           c.elements.size());
                engine.end_micro_step();
            }
            seen.skipped += engine.step(0.1).report().is_skipped ? 1 : 0;
            seen.left_alive += c.is_asynchronous ? 0 : alive.load();
        }
        for (auto const& values : full_parameters(engine)) {
            seen.weights.insert(seen.weights.end(), values.begin(), values.end());
        }
        seen.is_planned = engine.memory_plan()[BufferKind::gradient_leases].bytes()
                          == memory.allocated_bytes(BufferKind::gradient_leases);
    }
    seen.left_alive += alive.load(); // the engine has ended
    return seen;
}

template <int N, class T>
void check_case(Case const& c) {
    auto const run = [&](Delivery delivery, bool is_in_place) {
        return on_ranks<Seen>(c.world, [&](LoopbackCommunicator& inner) {
            Copying copying(inner);
            Any communicator = is_in_place ? Any(&inner) : Any(&copying);
            return train<N, T>(c, delivery, communicator);
        });
    };
    auto const written = run(Delivery::written, true);
    auto const check = [&](std::vector<Seen> const& found, std::vector<Seen> const& expected) {
        for (std::size_t rank = 0; rank < found.size(); ++rank) {
            INFO("seed " << c.seed << ", stage " << N << ", W " << c.world << ", rank " << rank);
            CHECK((found[rank].weights == expected[rank].weights));
            CHECK(found[rank].skipped == 0);
            CHECK(found[rank].left_alive == 0);
            CHECK(found[rank].is_planned);
        }
    };
    check(run(Delivery::copied, true), written);
    check(run(Delivery::kept, true), written);
    check(run(Delivery::kept, false), written);
    check(run(Delivery::mixed, true), run(Delivery::mixed, false));
}

/// Counts the bytes that a rank's commands read and write, apart from sums over ranks.
struct Counting : HostBackend {
    inline static thread_local std::size_t bytes = 0;

    template <class T>
    static void fill(Queue queue, T* out, std::size_t elements, T value) {
        bytes += elements * sizeof(T);
        HostBackend::fill(queue, out, elements, value);
    }
    static void copy_bytes(Queue queue, void* out, void const* in, std::size_t count) {
        bytes += 2 * count;
        HostBackend::copy_bytes(queue, out, in, count);
    }
    template <StorageType To, StorageType From>
    static void accumulate(Queue queue, To* sum, From const* in, std::size_t elements) {
        bytes += elements * (2 * sizeof(To) + sizeof(From));
        HostBackend::accumulate(queue, sum, in, elements);
    }
    template <StorageType T, StorageType InBucket>
    static void copy_to_bucket(Queue queue, std::span<CopySlice<T> const> slices,
                               InBucket* bucket) {
        for (auto const& slice : slices) {
            bytes += slice.elements * (sizeof(T) + sizeof(InBucket));
        }
        HostBackend::copy_to_bucket(queue, slices, bucket);
    }
};

/// The bytes that one backward pass of 1000 elements moves before its reductions.
template <class Communicator, class Make>
std::size_t counted(bool is_kept, bool is_registered, Make const& make) {
    return on_ranks<std::size_t, Loopback<Counting>>(2, [&](Loopback<Counting>& inner) {
        WithoutPieces<Loopback<Counting>> copying(inner);
        Communicator communicator = make(inner, copying);
        using Stage = ZeroStage<2, SizeCappedBucketer, Sgd, Communicator>;
        auto const gradient = std::make_shared<std::vector<float>>(1000, 1.0F);
        typename Stage::Registration parameter{.name = "p", .elements = 1000, .units = {0}};
        parameter.gradient = is_registered ? gradient->data() : nullptr;
        Stage engine(communicator, std::array{parameter});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        std::size_t const before = Counting::bytes;
        if (is_registered) {
            engine.begin_gradients(0, GradientWrites::overwritten);
        } else {
            (void)engine.hand_over(0, 0, *gradient, {},
                                   is_kept ? gradient : std::shared_ptr<void const>());
        }
        engine.gradients_ready(0);
        std::size_t const moved = Counting::bytes - before;
        engine.end_micro_step();
        (void)engine.step(0.1).report();
        return moved;
    })[0];
}

} // namespace

TEST_CASE("Gradients that are handed over with their owners train to the bits of written ones") {
    for (std::uint64_t seed = 1; seed <= 24; ++seed) {
        Case const c = make_case(seed);
        with_stage(static_cast<int>(seed % 4), [&]<int N>() {
            (seed / 4) % 2 == 0 ? check_case<N, float>(c) : check_case<N, bfloat16>(c);
        });
    }
}

TEST_CASE("A backward pass that is ahead of its reductions keeps the gradients of three buckets") {
    Case c;
    c.world = 2;
    c.elements.assign(40, 64);
    c.bucket_bytes = 256; // one tensor
    c.are_some_unused = false;
    auto const alive = [&](Delivery delivery) {
        return on_ranks<Seen>(c.world,
                              [&](LoopbackCommunicator& inner) {
                                  return train<2, float>(c, delivery, inner);
                              })[0]
            .most_alive;
    };
    CHECK(alive(Delivery::copied) == 0);
    std::size_t const kept = alive(Delivery::kept);
    CHECK(kept >= 2); // a unit has two
    CHECK(kept <= 4); // and the two buckets before it
}

TEST_CASE("The bytes that a gradient moves before its reduction are those of its copies") {
    using Two = WithoutPieces<Loopback<Counting>>;
    using Chosen = AnyCommunicator<Loopback<Counting>, Two>;
    constexpr std::size_t all = 1000 * sizeof(float);
    auto const loopback = [](auto& inner, Two&) { return Chosen(&inner); };
    auto const without = [](auto&, Two& copying) { return Chosen(&copying); };
    CHECK(counted<Chosen>(true, false, loopback) == 0);
    CHECK(counted<Chosen>(false, true, loopback) == 0);
    CHECK(counted<Chosen>(false, false, loopback) == 2 * all);
    CHECK(counted<Chosen>(true, false, without) == 2 * all);
    CHECK(counted<Chosen>(false, true, without) == 2 * all);
}

TEST_CASE(
    "A gradient that lies nowhere, or is not aligned, is refused, and the next one is taken") {
    for (bool const is_owned : {false, true}) {
        auto const found = on_ranks<std::vector<std::string>>(1, [&](LoopbackCommunicator& ranks) {
            std::vector<Parameter<float>> const parameters{{.name = "weight", .elements = 4}};
            ZeroStage<2, Sgd> engine(ranks, parameters);
            auto const owner = std::make_shared<std::vector<float>>(5, 1.0F);
            std::shared_ptr<void const> const kept = is_owned ? owner : nullptr;
            auto const* const odd =
                reinterpret_cast<float const*>(reinterpret_cast<std::uintptr_t>(owner->data()) + 1);
            engine.begin_step();
            engine.begin_micro_step();
            std::vector<std::string> own;
            for (float const* const from : {static_cast<float const*>(nullptr), odd}) {
                own.push_back(outcome_of([&] {
                                  engine.hand_over(0, 0, std::span(from, 4), std::nullopt, kept);
                              }).message);
            }
            engine.hand_over(0, 0, std::span<float const>(owner->data(), 4), std::nullopt, kept);
            engine.gradients_ready(0);
            engine.end_micro_step();
            own.push_back(std::to_string(engine.step(1.0).report().gradient_norm));
            return own;
        })[0];
        CHECK(found
              == std::vector<std::string>{
                  "zero: the gradient handed over for parameter 'weight' lies nowhere (a null "
                  "pointer); hand over where its 4 elements are (rank 0).",
                  "zero: the gradient handed over for parameter 'weight' does not begin at a "
                  "multiple of the bytes of an element; align its 4 elements (rank 0).",
                  "2.000000"});
    }
}

} // namespace zero::test::handed_over_test
