#include "cuda/device_model.cuh"

#include <zero/comm/timed.hpp>
#include <zero/cuda/queue_clock.hpp>
#include <zero/stage/update_on_host.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// The times of streams come from CUDA events. The emulated ones note when a stream
// reached them.

namespace zero::test::cuda_timeline_test {

namespace {

using Recorded = Timed<Loopback<cuda::Backend>>;

struct Seen {
    std::size_t spans = 0;
    std::size_t incomplete = 0;
    std::size_t disordered = 0; ///< spans of a stream that began before the one before it ended
    std::size_t waits = 0;      ///< waits of the host between begin_step and step
    std::size_t allocations = 0;
    double communication = 0.0;
    double exposed = 0.0;
};

} // namespace

TEST_CASE("On a device a timeline holds the order of each stream, and recording neither waits nor "
          "allocates",
          "[cuda]") {
    using Stage = ZeroStage<2, Parameters<bfloat16>, Recorded>;
    auto const ranks = on_ranks<Seen, Loopback<cuda::Backend>>(1, [&](auto& loopback) {
        Timeline timeline(loopback.rank(), 1000);
        Recorded communicator(loopback, &timeline);
        cuda::OwnedStream const stream;
        typename Stage::Options options;
        options.gradient_clipping = 0.5F;
        options.compute_queue = stream.get();
        Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
        for (std::uint64_t step = 0; step < 2; ++step) {
            (void)run_device_step(engine, stream.get(), 0, step, 2, 0.01, 4);
        }
        (void)engine.step_count();
        timeline.clear();
        std::size_t const waits = emulated::waits;
        std::size_t const allocations = emulated::allocations;
        (void)run_device_step(engine, stream.get(), 0, 2, 2, 0.01, 4);
        Seen seen;
        seen.waits = emulated::waits - waits;
        seen.allocations = emulated::allocations - allocations;
        (void)engine.step_count();
        cuda::detail::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
        auto const summary = timeline.summary();
        seen.spans = summary.spans;
        seen.communication = summary.communication;
        seen.exposed = summary.exposed;
        for (std::size_t position = 0; position < timeline.size(); ++position) {
            TimelineSpan const& span = timeline[position];
            seen.incomplete += span.begin == TimelineSpan::unset || span.end < span.begin;
            for (std::size_t earlier = position; earlier-- > 0 && span.queue != nullptr;) {
                if (timeline[earlier].queue == span.queue) {
                    seen.disordered += timeline[earlier].end > span.begin;
                    break;
                }
            }
        }
        return seen;
    });
    CHECK(ranks[0].spans > 20);
    CHECK(ranks[0].incomplete == 0);
    CHECK(ranks[0].disordered == 0);
    CHECK(ranks[0].waits == 0);
    CHECK(ranks[0].allocations == 0);
    CHECK(ranks[0].communication > 0.0);
    CHECK(ranks[0].exposed <= ranks[0].communication);
}

TEST_CASE("A timeline shows each update of the host on a queue of its own", "[cuda]") {
    using States = To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>;
    using Stage = ZeroStage<2, Parameters<bfloat16>, Recorded, Offload<States>>;
    auto const ranks = on_ranks<Seen, Loopback<cuda::Backend>>(1, [&](auto& loopback) {
        Timeline timeline(loopback.rank(), 1000);
        Recorded communicator(loopback, &timeline);
        cuda::OwnedStream const stream;
        typename Stage::Options options;
        options.compute_queue = stream.get();
        options.bucketer.bucket_bytes = 64;
        Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
        timeline.clear();
        (void)run_device_step(engine, stream.get(), 0, 2, 2, 0.01, 4);
        (void)engine.step_count();
        cuda::detail::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
        (void)timeline.summary(); // reads the times
        Seen seen;
        auto const& layout = engine.layout();
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            seen.waits += layout.content(bucket, layout.extent(bucket, 0)) != 0;
        }
        void const* queue = nullptr;
        for (std::size_t position = 0; position < timeline.size(); ++position) {
            TimelineSpan const& span = timeline[position];
            if (std::string(span.what.data()) == "update on the host") {
                seen.incomplete += span.end < span.begin || span.end == TimelineSpan::unset;
                seen.disordered += queue != nullptr && span.queue != queue;
                queue = span.queue;
                ++seen.spans;
            }
        }
        return seen;
    });
    CHECK(ranks[0].spans == ranks[0].waits);
    CHECK(ranks[0].spans > 2);
    CHECK(ranks[0].incomplete == 0);
    CHECK(ranks[0].disordered == 0);
}

} // namespace zero::test::cuda_timeline_test
