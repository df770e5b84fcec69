// The update on the host, with a device that is a host in disguise: its queues are threads, so that
// a sanitizer sees an ordering that is missing. tests/cuda/host_update_test.cu compares bits.

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/stage/update_on_host.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
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

template <class Stage>
std::vector<Values> train() {
    return on_ranks<Values, Group>(2, [](Group& group) {
        typename Stage::Options options;
        options.gradient_clipping = 0.5F;
        options.bucketer.bucket_bytes = 64;
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

} // namespace

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

} // namespace zero::test::host_update_order_test
