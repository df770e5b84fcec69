// The update on the host, with a device that is a host in disguise: its queues are threads, so that
// a sanitizer sees an ordering that is missing. tests/cuda/host_update_test.cu compares bits.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include "delayed_model.hpp"

#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/update_on_host.hpp>
#include <zero/zero.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace zero::test::host_update_order_test {

namespace {

struct Disguised : HostBackend {
    static constexpr bool is_device = true;
    static MemoryResource& staging_memory() { return default_memory(); }
    static void run_on_host(Queue queue, void (*function)(void*), void* argument) {
        queue->enqueue([=] { function(argument); });
    }
};

using Group = Loopback<Disguised>;
using AllStates = Offload<To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>>;

using Values = std::vector<std::vector<float>>;

/// @param threads of an update of the host; 0: the default, with buckets of few elements
template <class Stage>
std::vector<Values> train(std::size_t threads = 0, std::size_t chunk_bytes = 1U << 25U) {
    return on_ranks<Values, Group>(2, [=](Group& group) {
        typename Stage::Options options;
        options.gradient_clipping = 0.5F;
        options.bucketer.bucket_bytes = threads == 0 ? 64 : 4096;
        if constexpr (requires { options.offload.threads; }) {
            options.offload.threads = threads;
            options.offload.chunk_bytes = chunk_bytes;
        }
        Stage engine(group, registration<bfloat16>(toy_specs()), options);
        auto const rank = static_cast<std::uint64_t>(group.rank());
        for (std::uint64_t step = 0; step < 5; ++step) {
            (void)run_step(engine, rank, step, 2, 0.01, 8);
        }
        return full_parameters(engine);
    });
}

/// Trains by an update of the caller, which reads and writes master weights and a state.
template <class Stage>
std::vector<Values> train_by_hand() {
    return on_ranks<Values, Group>(2, [](Group& group) {
        Stage engine(group, registration<bfloat16>(toy_specs()));
        auto const rank = static_cast<std::uint64_t>(group.rank());
        for (std::uint64_t step = 0; step < 4; ++step) {
            engine.begin_step();
            float const scale = engine.loss_scale();
            for (auto const micro_step : engine.micro_steps(2)) {
                run_micro_step(engine, rank, step, micro_step, scale, 8);
            }
            if (step % 2 == 0) {
                (void)engine.step(0.01);
                continue;
            }
            (void)engine.step(0.01, [](auto const& slice) {
                for (std::size_t i = 0; i < slice.master.size(); ++i) {
                    slice.states[0][i] += slice.factor * slice.gradient[i];
                    slice.master[i] -= static_cast<float>(slice.learning_rate) * slice.states[0][i];
                }
            });
        }
        return full_parameters(engine);
    });
}

/// AdamW that counts the threads that update.
struct CountingAdamW : AdamW {
    inline static std::mutex mutex;
    inline static std::set<std::thread::id> threads;

    template <class F>
    void operator()(F gradient, F& parameter, F (&state)[states], Hyper const& hyper) const {
        {
            std::lock_guard const lock(mutex);
            threads.insert(std::this_thread::get_id());
        }
        AdamW::operator()(gradient, parameter, state, hyper);
    }
};

/// A device whose second function on the host waits for a gate, and whose page-locked memory notes
/// how many functions have run when it is freed.
struct Slow : HostBackend {
    static constexpr bool is_device = true;
    inline static std::atomic<int> begun{0};
    inline static std::atomic<int> ended{0};
    inline static std::atomic<bool> is_open{false};
    inline static int ended_before_free = -1;

    struct Staging final : MemoryResource {
        void* allocate(std::size_t bytes, BufferKind kind) override {
            return default_memory().allocate(bytes, kind);
        }
        void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
            ended_before_free = ended;
            default_memory().deallocate(memory, bytes, kind);
        }
    };

    static MemoryResource& staging_memory() {
        static Staging staging;
        return staging;
    }
    static void run_on_host(Queue queue, void (*function)(void*), void* argument) {
        queue->enqueue([=] {
            if (++begun == 2) {
                is_open.wait(false);
            }
            function(argument);
            ++ended;
        });
    }
};

template <class Engine>
struct ConfigOf;
template <class Config>
struct ConfigOf<Engine<Config>> {
    using type = Config;
};

} // namespace

TEST_CASE("What the host updates with is freed after the updates that were begun, also by an "
          "assignment") {
    using Stage = ZeroStage<2, Parameters<bfloat16>, Loopback<Slow>, AllStates>;
    using Config = ConfigOf<Stage::EngineType>::type;
    using Types = Config::TypesAt<0>;
    using Slice = zero::detail::OptimizerStore<Config, Types>::Slice;
    using Update = zero::detail::HostUpdate<Config, Types, Slice>;
    FlatLayout const layout = make_layout<ContiguousPartitioner, SizeCappedBucketer>(
        std::vector<ParameterSpec>{{"a", 64, {0}, 0, true}}, {1, sizeof(bfloat16)}, {});
    Stage::Options options;
    options.offload.threads = 1;
    host::ThreadedQueue queue;
    zero::detail::OffloadedStates<Config> const none{};
    zero::detail::CountedParameters<Config> const counted;
    zero::detail::TypeContext<Config> const context{{&layout,
                                                     nullptr,
                                                     &queue,
                                                     {},
                                                     &options,
                                                     &HostBackend::default_memory(),
                                                     StageRow{},
                                                     ReductionSchedule::boundary,
                                                     true,
                                                     1.0F,
                                                     0,
                                                     false,
                                                     &counted,
                                                     zero::detail::OffloadRef<Config>(none)},
                                                    0};
    std::vector<float> gradients(128);
    std::vector<bfloat16> parameters(128);
    std::vector<float> masters(128);
    zero::detail::List<Slice> slices;
    for (std::size_t begin : {0U, 64U}) {
        Slice slice;
        slice.gradient = gradients.data() + begin;
        slice.parameter = parameters.data() + begin;
        slice.master = masters.data() + begin;
        slice.elements = 64;
        slices.push_back(slice);
    }
    {
        Update updates(context, slices, {0, 1, 2});
        std::vector<Update::Group> const rows(1);
        UpdateDecision const decision{.skip = true};
        updates.update(1, rows.data(), &decision); // also begins the update of bucket 0
        queue.synchronise();
        std::thread opener([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            Slow::is_open = true;
            Slow::is_open.notify_all();
        });
        updates = Update();
        opener.join();
    }
    CHECK(Slow::ended_before_free == 2);
}

TEST_CASE("Updates of the caller between those of the host change no bit") {
    using InMemory = ZeroStage<2, Parameters<bfloat16>, Group>;
    auto const expected = train_by_hand<InMemory>();
    CHECK((train_by_hand<InMemory::with<AllStates>>() == expected));
    CHECK_FALSE((expected == train<InMemory>()));
}

TEST_CASE("Queues of two backends in one step are in order, and change no bit, in every stage") {
    in_every_stage([&]<int N>() {
        using InMemory = ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer, Group>;
        auto const expected = train<InMemory>();
        CHECK((train<typename InMemory::template with<AllStates>>() == expected));
    });
}

TEMPLATE_TEST_CASE(
    "Chunks, and threads that share one, change no bit, whatever the form of weights and "
    "states",
    "", (std::pair<MasterWeights<float>, OptimizerState<float>>),
    (std::pair<SplitMasterWeights, BlockScaledState<float16>>),
    (std::pair<StochasticRounding, OptimizerState<bfloat16>>),
    (std::pair<MasterWeights<float>, BlockScaledState<float16, RoundToNearest>>)) {
    using Weights = typename TestType::first_type;
    using States = typename TestType::second_type;
    using InMemory = ZeroStage<2, Parameters<bfloat16>, Weights, States, SizeCappedBucketer, Group>;
    auto const expected = train<InMemory>(1);
    using Kinds =
        std::conditional_t<std::is_same_v<Weights, StochasticRounding>,
                           To<HostMemory, BufferKind::optimizer_state>,
                           To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>>;
    for (std::size_t const threads : {1U, 2U, 3U, 7U, 64U}) {
        for (std::size_t const chunk_bytes : {512U, 1500U, 1U << 25U}) {
            CAPTURE(threads, chunk_bytes);
            using OnHost = typename InMemory::template with<Offload<Kinds>>;
            CHECK((train<OnHost>(threads, chunk_bytes) == expected));
        }
    }
}

TEST_CASE("A rank updates with as many threads as its options name, and no more than its blocks") {
    using Stage =
        ZeroStage<2, Parameters<bfloat16>, CountingAdamW, SizeCappedBucketer, Group, AllStates>;
    for (auto const& [threads, used] : {std::pair(1U, 2U), {3U, 6U}, {0U, 2U}}) {
        CAPTURE(threads);
        CountingAdamW::threads.clear();
        (void)train<Stage>(threads);
        CHECK(CountingAdamW::threads.size() == used); // of two ranks
    }
}

TEST_CASE("A chunk on the host that holds no 64 elements is refused by its bytes") {
    using Stage = ZeroStage<2, Parameters<bfloat16>, SizeCappedBucketer, Group, AllStates>;
    CHECK_THROWS_WITH(
        train<Stage>(1, 511),
        Catch::Contains("offload.chunk_bytes is 511 bytes, but a chunk must hold gradients and "
                        "parameters of 64 elements, 512 bytes; set it to at least that."));
    CHECK_NOTHROW(train<Stage>(1, 512));
    CHECK_THROWS_WITH(train<Stage>(1025, 512),
                      Catch::Contains("offload.threads is 1025; at most 1024 threads"));
}

TEST_CASE("A delayed update on the host has the bits of its rule") {
    std::uint64_t seed = 0;
    auto const compare = [&]<class Stage, class States>(char const* name) {
        using Late = typename Stage::template with<States>;
        INFO(name << ", stage " << Stage::stage);
        DelayedTraining training;
        training.seed = ++seed;
        training.micro_steps = 1 + seed % 2;
        training.warm_up = seed % 3;
        training.has_infinities = zero::detail::config_of_t<Stage>::LossScaler::skips_overflow;
        typename Stage::Options options;
        options.bucketer.bucket_bytes = 512;
        options.gradient_clipping = 0.7F;
        typename Late::Options late;
        late.bucketer.bucket_bytes = 512;
        late.gradient_clipping = 0.7F;
        late.offload.threads = 1 + seed % 3;
        late.offload.chunk_bytes = 1024 + 512 * (seed % 4);
        late.offload.warm_up_steps = training.warm_up;
        compare_delayed(delayed_runs<Late, false>(2, late, training),
                        delayed_runs<Stage, true>(2, options, training));
    };
    in_every_stage([&]<int N>() {
        using Half = Parameters<bfloat16>;
        using Masters =
            Offload<To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>,
                    DelayedUpdate>;
        using Own = Offload<To<HostMemory, BufferKind::optimizer_state>, DelayedUpdate>;
        compare.template operator()<ZeroStage<N, Half, SizeCappedBucketer, Group>, Masters>(
            "copied masters");
        compare.template operator()<ZeroStage<N, Sgd, SizeCappedBucketer, Group>, Own>("float");
        compare.template
        operator()<ZeroStage<N, Parameters<float16>, DynamicLossScaler, SizeCappedBucketer, Group>,
                   Masters>("float16, skipped steps");
        compare.template operator()<ZeroStage<N, Half, SplitMasterWeights,
                                              BlockScaledState<float16>, SizeCappedBucketer, Group>,
                                    Masters>("split masters, scaled states");
    });
}

TEST_CASE("The memory plan of a delayed update on the host holds a place for each chunk") {
    auto const bytes = [](auto* stage) {
        using Stage = std::remove_pointer_t<decltype(stage)>;
        return on_ranks<std::size_t, Group>(1, [](Group& group) {
            typename Stage::Options options;
            options.bucketer.bucket_bytes = 512;
            Stage engine(group, registration<bfloat16>(toy_specs()), options);
            (void)run_step(engine, 0, 0, 1, 0.01, 8);
            return engine.memory_plan().tier_bytes;
        })[0];
    };
    using Stage = ZeroStage<2, Parameters<bfloat16>, SizeCappedBucketer, Group>;
    using Kinds = To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>;
    constexpr std::size_t elements = 300 + 500 + 7 + 129 + 64 + 1; // those that are trained
    std::size_t const late =
        bytes(static_cast<Stage::with<Offload<Kinds, DelayedUpdate>>*>(nullptr));
    CHECK(late >= elements * (3 * sizeof(float) + sizeof(float) + sizeof(bfloat16)));
    CHECK(late > bytes(static_cast<Stage::with<Offload<Kinds>>*>(nullptr)));
}

} // namespace zero::test::host_update_order_test
