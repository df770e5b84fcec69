#pragma once

// Graphs of the emulated device. Work that is enqueued on a captured stream becomes a node after
// the nodes that this stream, and the events it waited for, stand for. A replay runs the nodes in
// any order that their edges allow, so a missing edge shows. Whatever invalidates a capture on a
// device does so here: waiting for, or querying, a stream or an event of it; waiting inside for an
// event from outside; allocating memory; streams that are not joined at its end. Included by
// runtime_state.hpp.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};

namespace zero::test::emulated {

struct GraphNode {
    std::function<void()> command;
    std::set<std::size_t> after; ///< nodes with smaller numbers
};

struct Capture;

/// A point in a capture: the nodes after which the next one comes.
struct CapturePoint {
    std::shared_ptr<Capture> capture;
    std::set<std::size_t> nodes;
};

struct Capture {
    std::vector<GraphNode> nodes;
    std::set<CapturePoint*> streams; ///< streams that take part
    CapturePoint* origin = nullptr;
    std::thread::id thread = std::this_thread::get_id();
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    bool is_spoilt = false;
    bool is_over = false;
};

/// One mutex for all captures, because several threads may enqueue work of one capture.
inline std::mutex& capture_mutex() {
    static std::mutex one;
    return one;
}
inline std::set<Capture*>& captures() {
    static std::set<Capture*> under_way;
    return under_way;
}
inline thread_local cudaStreamCaptureMode capture_mode =
    cudaStreamCaptureModeGlobal; ///< capture mode of the calling thread

enum class Capturing { no, yes, spoilt };

/// Set by a test and asked at each call that changes a graph. It must return false for a correct
/// call.
inline std::atomic<bool (*)()> is_unguarded{nullptr};
inline std::atomic<std::size_t> guarded_calls{0};
inline std::atomic<std::size_t> unguarded_calls{0};

inline void note_change_of_graph(CapturePoint const& point) {
    auto* const question = is_unguarded.load();
    if (question != nullptr && point.capture != nullptr) {
        ++(question() ? unguarded_calls : guarded_calls);
    }
}

inline Capturing state_of(CapturePoint const& stream) {
    std::lock_guard const lock(capture_mutex());
    return stream.capture == nullptr   ? Capturing::no
           : stream.capture->is_spoilt ? Capturing::spoilt
                                       : Capturing::yes;
}

/// Returns the capture point of a stream; null if it is not captured.
inline CapturePoint point_of(CapturePoint const& stream) {
    std::lock_guard const lock(capture_mutex());
    return stream;
}

/// Adds a node if the stream is captured, unless the capture is invalid.
template <class Command>
Capturing add_node(CapturePoint& stream, Command const& command) {
    note_change_of_graph(stream);
    std::lock_guard const lock(capture_mutex());
    if (stream.capture == nullptr) {
        return Capturing::no;
    }
    if (stream.capture->is_spoilt) {
        return Capturing::spoilt;
    }
    auto& nodes = stream.capture->nodes;
    nodes.push_back({command, std::exchange(stream.nodes, {nodes.size()})});
    return Capturing::yes;
}

/// Invalidates the capture, if any, of a stream or an event that is waited for or queried.
inline bool spoils(CapturePoint const& point) {
    std::lock_guard const lock(capture_mutex());
    if (point.capture != nullptr) {
        point.capture->is_spoilt = true;
    }
    return point.capture != nullptr;
}

/// Invalidates captures that forbid a call: those of this thread, and global ones.
inline bool is_forbidden() {
    std::lock_guard const lock(capture_mutex());
    bool is_any = false;
    for (Capture* const capture : captures()) {
        bool const is_own = capture->thread == std::this_thread::get_id();
        bool const is_hit = capture->mode == cudaStreamCaptureModeGlobal
                                ? is_own || capture_mode == cudaStreamCaptureModeGlobal
                                : is_own && capture->mode == cudaStreamCaptureModeThreadLocal;
        if (is_hit && capture_mode != cudaStreamCaptureModeRelaxed) {
            capture->is_spoilt = true;
            is_any = true;
        }
    }
    return is_any;
}

/// Returns whether a capture is under way, without affecting it.
inline bool is_any_capture() {
    std::lock_guard const lock(capture_mutex());
    return !captures().empty();
}

enum class Joined { no, yes, spoilt, from_outside, from_another, too_late };

/// Makes a stream wait for an event. A stream that waits for an event of a capture joins the
/// capture.
inline Joined join_capture(CapturePoint& stream, CapturePoint const& event) {
    note_change_of_graph(event);
    std::lock_guard const lock(capture_mutex());
    if (stream.capture != nullptr && stream.capture->is_spoilt) {
        return Joined::spoilt;
    }
    if (event.capture == nullptr) {
        if (stream.capture == nullptr) {
            return Joined::no;
        }
        stream.capture->is_spoilt = true;
        return Joined::from_outside;
    }
    if (event.capture->is_over) {
        return Joined::too_late;
    }
    if (stream.capture != nullptr && stream.capture != event.capture) {
        stream.capture->is_spoilt = true;
        return Joined::from_another;
    }
    stream.capture = event.capture;
    stream.capture->streams.insert(&stream);
    stream.nodes.insert(event.nodes.begin(), event.nodes.end());
    return Joined::yes;
}

inline void begin_capture(CapturePoint& stream, cudaStreamCaptureMode mode) {
    std::lock_guard const lock(capture_mutex());
    stream.capture = std::make_shared<Capture>();
    stream.nodes.clear();
    stream.capture->origin = &stream;
    stream.capture->streams.insert(&stream);
    stream.capture->mode = mode;
    captures().insert(stream.capture.get());
}

struct EndedCapture {
    std::shared_ptr<Capture> capture{}; ///< null unless it began on this stream and in this thread
    bool is_joined = false;             ///< whether the origin waited for all other streams
    bool is_of_another_thread = false;
};

inline EndedCapture end_capture(CapturePoint& stream) {
    std::lock_guard const lock(capture_mutex());
    auto const capture = stream.capture;
    if (capture == nullptr || capture->origin != &stream) {
        return {};
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed
        && capture->thread != std::this_thread::get_id()) {
        return {{}, false, true};
    }
    std::set<std::size_t> before = stream.nodes;
    for (std::size_t node = capture->nodes.size(); node-- > 0;) {
        if (before.count(node) != 0) {
            before.insert(capture->nodes[node].after.begin(), capture->nodes[node].after.end());
        }
    }
    bool is_joined = true;
    for (CapturePoint* const other : capture->streams) {
        is_joined = is_joined
                    && std::includes(before.begin(), before.end(), other->nodes.begin(),
                                     other->nodes.end());
        *other = {};
    }
    capture->is_over = true;
    captures().erase(capture.get());
    return {capture, is_joined, false};
}

/// Destroys a stream.
inline void leave_capture(CapturePoint& stream) {
    std::lock_guard const lock(capture_mutex());
    if (stream.capture != nullptr) {
        stream.capture->streams.erase(&stream);
        stream.capture->is_spoilt = true;
        if (stream.capture->origin == &stream) { // no call can end it any more
            for (CapturePoint* const other : stream.capture->streams) {
                *other = {};
            }
            stream.capture->is_over = true;
            captures().erase(stream.capture.get());
        }
    }
}

/// Runs all nodes in any order that their edges allow.
inline void replay(std::vector<GraphNode> const& nodes, std::uint64_t seed) {
    std::vector<std::size_t> missing(nodes.size());
    std::vector<std::vector<std::size_t>> followers(nodes.size());
    std::vector<std::size_t> ready;
    for (std::size_t node = 0; node < nodes.size(); ++node) {
        missing[node] = nodes[node].after.size();
        for (std::size_t const before : nodes[node].after) {
            followers[before].push_back(node);
        }
        if (missing[node] == 0) {
            ready.push_back(node);
        }
    }
    while (!ready.empty()) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        std::swap(ready[(seed >> 33U) % ready.size()], ready.back());
        std::size_t const node = ready.back();
        ready.pop_back();
        nodes[node].command();
        for (std::size_t const follower : followers[node]) {
            if (--missing[follower] == 0) {
                ready.push_back(follower);
            }
        }
    }
}

} // namespace zero::test::emulated
