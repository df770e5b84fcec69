#include "cuda/captured_steps.cuh"

#include "support/stages.hpp"

#include <set>
#include <string>
#include <thread>
#include <vector>

// The emulated device forbids during a capture what a real one forbids. Otherwise the tests of
// graphs would mean nothing.

namespace zero::test::graph_rules_test {

namespace {

/// Returns the message of the engine, and CUDA's code at the end, for a capture of one step.
/// @param joins_before whether `join` is called before the capture
/// @param joins_after whether `join` is called at the end of the capture
std::string text_of_capture(bool joins_before, bool joins_after) {
    using Stage = ZeroStage<2, Parameters<bfloat16>, Loopback<cuda::Backend>>;
    return on_ranks<std::string, Stage::Communicator>(1, [&](auto& communicator) {
        cuda::OwnedStream const stream;
        Stage::Options options;
        options.compute_queue = stream.get();
        Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
        (void)run_device_step(engine, stream.get(), 0, 0, 1, 0.1, 4);
        if (joins_before) {
            engine.join();
        }
        std::string text;
        CapturedGraph graph;
        try {
            graph.capture(stream.get(), [&] {
                try {
                    (void)run_device_step(engine, stream.get(), 0, 1, 1, 0.1, 4);
                    if (joins_after) {
                        engine.join();
                    }
                } catch (OutOfOrder const& error) {
                    text = error.what();
                }
            });
        } catch (CudaError const& error) {
            text += std::to_string(error.code());
        }
        return text;
    })[0];
}

/// Returns the message for a second capture that waits for an event of the first.
std::string message_of_second_capture(cudaStream_t stream, cuda::Event const& of_first) {
    cudaGraph_t graph = nullptr;
    cuda::detail::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                        "cudaStreamBeginCapture");
    std::string const message = outcome_of([&] { of_first.make_wait(stream); }).message;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(cudaGetLastError() == cudaErrorStreamCaptureInvalidated);
    return message;
}

} // namespace

TEST_CASE("A step that is captured without a join waits for work outside the capture or leaves a "
          "stream unjoined",
          "[cuda]") {
    CHECK(text_of_capture(true, true).empty());
    std::string const without = text_of_capture(false, true);
    CAPTURE(without);
    CHECK(without.find("call join() of the engine right before the capture") != std::string::npos);
    CHECK(without.find(std::to_string(cudaErrorStreamCaptureInvalidated)) != std::string::npos);
    CHECK(text_of_capture(true, false) == std::to_string(cudaErrorStreamCaptureUnjoined));
}

TEST_CASE("Queries of a capture and forbidden calls invalidate it, and a thread that opts out may "
          "query work outside",
          "[cuda]") {
    cuda::OwnedStream const stream;
    cuda::Event const outside = cuda::Event::record(stream.get());
    auto const is_spoilt_by = [&](auto const& question) {
        cudaGraph_t graph = nullptr;
        cuda::detail::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                            "cudaStreamBeginCapture");
        cuda::Event const inside = cuda::Event::record(stream.get());
        question(inside);
        cudaError_t const code = cudaStreamEndCapture(stream.get(), &graph);
        CHECK((graph == nullptr) == (code != cudaSuccess));
        cuda::detail::ignore(cudaGraphDestroy(graph));
        (void)cudaGetLastError();
        return code == cudaErrorStreamCaptureInvalidated;
    };
    CHECK(is_spoilt_by([&](auto const&) { (void)cudaStreamSynchronize(stream.get()); }));
    CHECK(is_spoilt_by([](cuda::Event const& inside) { (void)cudaEventQuery(inside.handle()); }));
    CHECK(is_spoilt_by(
        [](cuda::Event const& inside) { (void)cudaEventSynchronize(inside.handle()); }));
    CHECK(is_spoilt_by(
        [&](auto const&) { (void)cudaStreamWaitEvent(stream.get(), outside.handle(), 0); }));
    CHECK(is_spoilt_by([&](auto const&) { (void)cudaEventQuery(outside.handle()); }));
    CHECK(is_spoilt_by([](auto const&) {
        void* memory = nullptr;
        (void)cudaMalloc(&memory, 16);
    }));
    CHECK(is_spoilt_by([&](auto const&) {
        (void)cudaStreamSynchronize(stream.get());
        CHECK(cudaMemsetAsync(nullptr, 0, 0, stream.get()) == cudaErrorStreamCaptureInvalidated);
        CHECK_THROWS_AS(cuda::Event::record(stream.get()), CudaError);
        CHECK_THROWS_AS(outside.make_wait(stream.get()), CudaError);
        CHECK(cuda::detail::is_capturing(stream.get()));
    }));
    cuda::OwnedStream const other;
    CHECK(is_spoilt_by([&](cuda::Event const& inside) { // ranks that capture a graph each
        CHECK(message_of_second_capture(other.get(), inside).find("captured together")
              != std::string::npos);
        (void)cudaStreamSynchronize(stream.get());
    }));
    CHECK_FALSE(is_spoilt_by([&](auto const&) {
        cudaGraph_t graph = nullptr;
        std::thread([&] {
            CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaErrorStreamCaptureWrongThread);
        }).join();
    }));
    CHECK_FALSE(is_spoilt_by([&](auto const&) {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        cuda::detail::check(cudaThreadExchangeStreamCaptureMode(&mode),
                            "cudaThreadExchangeStreamCaptureMode");
        (void)cudaEventQuery(outside.handle());
        cuda::detail::check(cudaThreadExchangeStreamCaptureMode(&mode),
                            "cudaThreadExchangeStreamCaptureMode");
    }));
    CHECK_FALSE(is_spoilt_by([](cuda::Event const& inside) {
        CHECK_THROWS_AS(inside.synchronise(), OutOfOrder);
    })); // the library refuses before it queries CUDA
}

TEST_CASE("A replay runs nodes in the order of their edges and unrelated nodes in any order",
          "[cuda]") {
    cuda::OwnedStream const first;
    cuda::OwnedStream const second;
    static std::vector<int> order;
    auto const note = [](cudaStream_t stream, int& number) {
        cuda::detail::check(
            cudaLaunchHostFunc(
                stream, [](void* which) { order.push_back(*static_cast<int*>(which)); }, &number),
            "cudaLaunchHostFunc");
    };
    int numbers[] = {0, 1, 2, 3};
    CapturedGraph graph;
    graph.capture(first.get(), [&] {
        note(first.get(), numbers[0]);
        cuda::Event::record(first.get()).make_wait(second.get());
        note(first.get(), numbers[1]);
        note(second.get(), numbers[2]);
        cuda::Event::record(second.get()).make_wait(first.get());
        note(first.get(), numbers[3]);
    });
    CHECK(order.empty());
    std::set<std::vector<int>> seen;
    for (int replay = 0; replay < 32; ++replay) {
        order.clear();
        graph.launch(first.get());
        cuda::detail::check(cudaStreamSynchronize(first.get()), "cudaStreamSynchronize");
        seen.insert(order);
    }
    CHECK(seen == std::set<std::vector<int>>{{0, 1, 2, 3}, {0, 2, 1, 3}});
}

} // namespace zero::test::graph_rules_test
