#pragma once

#include <zero/host/queue.hpp>

#include <atomic>
#include <thread>
#include <vector>

namespace zero::test {

/// Holds queues until it is opened or destroyed. `open` yields first, so that a command that
/// forgets to wait has time to overtake. Correct code does not depend on how long it yields.
class Gate {
public:
    Gate() = default;
    Gate(Gate const&) = delete;
    Gate& operator=(Gate const&) = delete;
    ~Gate() {
        open();
        if (_opener.joinable()) {
            _opener.join();
        }
        // A command that has passed may still read the flag.
        for (host::Event const& passed : _passed) {
            passed.synchronise();
        }
    }

    void hold(host::Queue& queue) {
        queue.enqueue([this] { _is_open.wait(false); });
        _passed.push_back(queue.record());
    }

    void open() {
        for (int turn = 0; turn < 100 && !_is_open.load(); ++turn) {
            std::this_thread::yield();
        }
        _is_open.store(true);
        _is_open.notify_all();
    }

    /// Opens while the calling thread continues, perhaps into a wait.
    void open_by_another_thread() {
        _opener = std::thread([this] { open(); });
    }

private:
    std::atomic<bool> _is_open{false};
    std::thread _opener;
    std::vector<host::Event> _passed;
};

} // namespace zero::test
