#include "cuda/ptx/runtime/runtime.hpp"

#include <set>

// Captures, and graphs that run in any order that their edges allow.

using namespace zero::test::ptx;

namespace {

std::shared_ptr<Graph>& graph_of(void* handle) {
    return *static_cast<std::shared_ptr<Graph>*>(handle);
}

/// Returns whether the end of the capture depends on each of its nodes.
bool is_joined(Graph const& graph, std::vector<std::size_t> ends) {
    std::set<std::size_t> reached;
    while (!ends.empty()) {
        std::size_t const node = ends.back();
        ends.pop_back();
        if (reached.insert(node).second) {
            auto const& before = graph.nodes[node].dependencies;
            ends.insert(ends.end(), before.begin(), before.end());
        }
    }
    return reached.size() == graph.nodes.size();
}

void run_graph(Graph const& graph) {
    auto& random = Runtime::instance().random;
    std::vector<std::size_t> missing(graph.nodes.size());
    std::vector<std::vector<std::size_t>> next(graph.nodes.size());
    std::vector<std::size_t> ready;
    for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
        auto const& before = graph.nodes[node].dependencies;
        std::set<std::size_t> const distinct(before.begin(), before.end());
        missing[node] = distinct.size();
        for (std::size_t const other : distinct) {
            next[other].push_back(node);
        }
        if (distinct.empty()) {
            ready.push_back(node);
        }
    }
    while (!ready.empty()) {
        std::swap(ready[random() % ready.size()], ready.back());
        std::size_t const node = ready.back();
        ready.pop_back();
        graph.nodes[node].run();
        for (std::size_t const other : next[node]) {
            if (--missing[other] == 0) {
                ready.push_back(other);
            }
        }
    }
}

} // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    Runtime& runtime = Runtime::instance();
    Lock const lock(runtime.mutex);
    Stream* const stream = stream_of(handle);
    if (stream == &runtime.legacy) {
        return result(cudaErrorStreamCaptureUnsupported);
    }
    if (stream->capture != nullptr) {
        return result(cudaErrorIllegalState);
    }
    auto graph = std::make_shared<Graph>();
    graph->origin = stream;
    graph->streams = {stream};
    graph->mode = mode;
    graph->thread = std::this_thread::get_id();
    stream->capture = graph;
    stream->dependencies.clear();
    runtime.captures.insert(std::move(graph));
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    Runtime& runtime = Runtime::instance();
    Lock const lock(runtime.mutex);
    Stream const* const stream = stream_of(handle);
    *status = cudaStreamCaptureStatusNone;
    if (!is_known(stream_of(handle))) {
        return result(cudaErrorInvalidResourceHandle);
    }
    if (stream == &runtime.legacy) {
        for (auto const& capture : runtime.captures) {
            if (capture->origin->is_blocking && capture->mode != cudaStreamCaptureModeRelaxed) {
                return result(cudaErrorStreamCaptureImplicit);
            }
        }
    } else if (stream->capture != nullptr) {
        *status = stream->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                              : cudaStreamCaptureStatusActive;
    }
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* result_graph) {
    Runtime& runtime = Runtime::instance();
    Lock const lock(runtime.mutex);
    Stream* const stream = stream_of(handle);
    *result_graph = nullptr;
    auto const graph = stream->capture;
    if (graph == nullptr) {
        return result(cudaErrorIllegalState);
    }
    bool const is_complete = is_joined(*graph, stream->dependencies);
    for (Stream* const member : graph->streams) {
        member->capture = nullptr;
        member->dependencies.clear();
    }
    runtime.captures.erase(graph);
    graph->origin = nullptr;
    if (graph->is_invalid || !is_complete) {
        return result(graph->is_invalid ? cudaErrorStreamCaptureInvalidated
                                        : cudaErrorStreamCaptureUnjoined);
    }
    *result_graph = reinterpret_cast<cudaGraph_t>(new std::shared_ptr<Graph>(graph));
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
    *executable = reinterpret_cast<cudaGraphExec_t>(new std::shared_ptr<Graph>(graph_of(graph)));
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    Lock const lock(Runtime::instance().mutex);
    delete &graph_of(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    Lock const lock(Runtime::instance().mutex);
    delete &graph_of(executable);
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
    *count = graph_of(graph)->nodes.size();
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    return enqueue(stream, [graph = graph_of(executable)] { run_graph(*graph); });
}

} // extern "C"
