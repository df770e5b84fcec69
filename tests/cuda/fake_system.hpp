#pragma once

#include <zero/cuda/nccl_system.hpp>
#include <zero/host/queue.hpp>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>

namespace zero::test {

/// @brief A system for communicators on the host, with fake devices, events of host queues, the
/// real clock and its own environment.
class FakeSystem : public cuda::NcclSystem {
public:
    int devices = 9;                           // the suite runs up to 8 ranks, and a part of 9
    inline static thread_local int device = 0; ///< each thread has its own
    std::map<std::string, std::string> variables;

    FakeSystem() { device = 0; }

    int device_count(int& count) noexcept override {
        count = devices;
        return 0;
    }
    int current_device(int& current) noexcept override {
        current = device;
        return 0;
    }
    int set_device(int chosen) noexcept override {
        device = chosen;
        return 0;
    }
    char const* error_string(int) noexcept override { return "a fake error of CUDA"; }

    int create_event(EventHandle& event) noexcept override {
        event = new host::Event();
        return 0;
    }
    int record_event(EventHandle event, cuda::StreamHandle stream) noexcept override {
        *static_cast<host::Event*>(event) = static_cast<host::Queue*>(stream)->record();
        return 0;
    }
    int is_event_complete(EventHandle event, bool& is_complete) noexcept override {
        is_complete = static_cast<host::Event*>(event)->is_complete();
        return 0;
    }
    void destroy_event(EventHandle event) noexcept override {
        delete static_cast<host::Event*>(event);
    }
    int is_capturing(cuda::StreamHandle, bool& is_capturing) noexcept override {
        is_capturing = false;
        return 0;
    }

    Duration now() noexcept override {
        return std::chrono::duration_cast<Duration>(
            std::chrono::steady_clock::now().time_since_epoch());
    }
    void pause(unsigned) noexcept override { std::this_thread::yield(); }
    bool run_bounded(int, cuda::NcclWork work, cuda::NcclLibrary& nccl, cuda::NcclHandle handle,
                     Duration) noexcept override {
        std::thread([&] { work(nccl, handle); }).join();
        return true;
    }

    char const* variable(char const* name) noexcept override {
        auto const found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    }
    void set_variable(char const* name, char const* value) noexcept override {
        if (value == nullptr) {
            variables.erase(name);
        } else {
            variables[name] = value;
        }
    }
};

} // namespace zero::test
