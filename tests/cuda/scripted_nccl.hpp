#pragma once

// A scripted NCCL and system: every call is recorded, results are set beforehand, and each pause
// advances the clock.

#include <zero/cuda/nccl_communicator.hpp>
#include <zero/host/host_backend.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace zero::test {

/// @brief Records the calls of both interfaces in order. Thread-safe.
class Journal {
public:
    void add(std::string const& line) {
        {
            std::lock_guard const lock(_mutex);
            _lines.push_back(line);
        }
        _changed.notify_all();
    }

    /// Returns the lines since its last call.
    std::vector<std::string> take() {
        std::lock_guard const lock(_mutex);
        return std::exchange(_lines, {});
    }

    /// Returns false if the line does not appear within a minute.
    bool wait_for(std::string const& line) {
        std::unique_lock lock(_mutex);
        return _changed.wait_for(lock, std::chrono::minutes(1), [&] {
            for (auto const& found : _lines) {
                if (found == line) {
                    return true;
                }
            }
            return false;
        });
    }

private:
    std::mutex _mutex;
    std::condition_variable _changed;
    std::vector<std::string> _lines;
};

class ScriptedNccl : public cuda::NcclLibrary {
public:
    using Result = cuda::NcclResult;
    using Type = cuda::NcclType;
    using Reduction = cuda::NcclReduction;
    using Handle = cuda::NcclHandle;
    using Stream = cuda::StreamHandle;

    explicit ScriptedNccl(Journal& journal) : _journal(&journal) {}

    int header = 22809;
    int library = 22809;
    int rank = 1;
    int world = 3;
    std::byte const* base = nullptr;       ///< addresses are recorded as bytes from here
    std::map<std::string, Result> results; ///< results by function; success by default
    /// The answers to the next polls for an asynchronous error; then `later`.
    std::vector<Result> asynchronous;
    Result later = Result::success;
    std::function<void()> on_question;               ///< called with each poll
    std::function<void(std::string const&)> on_call; ///< called with the name of each other call
    std::function<void()>
        on_count; ///< called when the number of ranks is queried, which joins the last call

    int header_version() noexcept override { return header; }
    Result get_version(int& version) noexcept override {
        version = library;
        return result_of("get_version");
    }
    char const* error_string(Result result) noexcept override {
        return result == Result::system_error ? "unhandled system error" : "some error";
    }
    char const* last_error(Handle) noexcept override { return "the wire broke"; }

    Result get_unique_id(cuda::NcclUniqueId& id) noexcept override {
        id.bytes[0] = std::byte{42};
        return note("get_unique_id");
    }
    Result init_rank(Handle& handle, int ranks, cuda::NcclUniqueId const& id, int own,
                     cuda::NcclOptions const& options) noexcept override {
        handle = result_of("init_rank") == Result::success
                         || result_of("init_rank") == Result::in_progress
                     ? this
                     : nullptr;
        return note("init_rank", std::to_string(own) + " of " + std::to_string(ranks) + " id "
                                     + std::to_string(std::to_integer<int>(id.bytes[0]))
                                     + (options.mode == cuda::NcclMode::blocking ? " blocking" : "")
                                     + launches(options));
    }
    bool can_split = true;
    bool has_split() noexcept override { return can_split; }
    Result split(Handle, int color, int key, Handle& part) noexcept override {
        Result const result =
            note("split", "color " + std::to_string(color) + " key " + std::to_string(key));
        part = result == Result::success || result == Result::in_progress ? this : nullptr;
        return result;
    }
    Result count(Handle, int& ranks) noexcept override {
        if (on_count) {
            on_count();
        }
        ranks = world;
        return result_of("count");
    }
    Result user_rank(Handle, int& own) noexcept override {
        own = rank;
        return result_of("user_rank");
    }
    Result get_async_error(Handle handle, Result& error) noexcept override {
        if (on_question) {
            on_question();
        }
        if (handle == nullptr) {
            _journal->add("a question about a freed communicator");
        }
        error = later;
        if (!asynchronous.empty()) {
            error = asynchronous.front();
            asynchronous.erase(asynchronous.begin());
        }
        return result_of("get_async_error");
    }
    Result finalize(Handle) noexcept override { return note("finalize"); }
    Result destroy(Handle) noexcept override { return note("destroy"); }
    Result abort(Handle) noexcept override { return note("abort"); }
    Result group_start() noexcept override { return note("group_start"); }
    Result group_end() noexcept override { return note("group_end"); }

    Result reduce(void const* send, void* receive, std::size_t count, Type type,
                  Reduction reduction, int root, Handle, Stream) noexcept override {
        return note("reduce", text(send, receive, count, type) + text(reduction) + " to "
                                  + std::to_string(root));
    }
    Result broadcast(void const* send, void* receive, std::size_t count, Type type, int root,
                     Handle, Stream) noexcept override {
        return note("broadcast",
                    text(send, receive, count, type) + " from " + std::to_string(root));
    }
    Result all_reduce(void const* send, void* receive, std::size_t count, Type type,
                      Reduction reduction, Handle, Stream) noexcept override {
        return note("all_reduce", text(send, receive, count, type) + text(reduction));
    }
    Result reduce_scatter(void const* send, void* receive, std::size_t count, Type type,
                          Reduction reduction, Handle, Stream) noexcept override {
        return note("reduce_scatter", text(send, receive, count, type) + text(reduction));
    }
    Result all_gather(void const* send, void* receive, std::size_t count, Type type, Handle,
                      Stream) noexcept override {
        return note("all_gather", text(send, receive, count, type));
    }

    Result send(void const* memory, std::size_t count, Type type, int peer, Handle,
                Stream) noexcept override {
        return note("send", text(memory, nullptr, count, type) + " to " + std::to_string(peer));
    }
    Result receive(void* memory, std::size_t count, Type type, int peer, Handle,
                   Stream) noexcept override {
        return note("receive",
                    text(nullptr, memory, count, type) + " from " + std::to_string(peer));
    }

    Result memory_allocate(void*& memory, std::size_t bytes) noexcept override {
        Result const result = note("memory_allocate", std::to_string(bytes));
        memory = result == Result::success ? ::operator new(bytes) : nullptr;
        return result;
    }
    Result memory_free(void* memory) noexcept override {
        ::operator delete(memory);
        return note("memory_free");
    }
    Result register_memory(Handle, void* memory, std::size_t bytes,
                           void*& registration) noexcept override {
        Result const result = note("register_memory", std::to_string(bytes));
        registration = result == Result::success ? memory : nullptr;
        return result;
    }
    Result deregister_memory(Handle, void*) noexcept override { return note("deregister_memory"); }

    bool knows_windows = true;
    bool can_have_windows = true; ///< whether the machine can
    bool has_windows() noexcept override { return knows_windows; }
    Result register_window(Handle, void* memory, std::size_t bytes,
                           void*& window) noexcept override {
        Result const result = note("register_window", std::to_string(bytes));
        window = can_have_windows ? memory : nullptr;
        return result;
    }
    Result deregister_window(Handle, void*) noexcept override { return note("deregister_window"); }

private:
    static std::string launches(cuda::NcclOptions const& options) {
        std::string text;
        if (options.min_ctas != 0 || options.max_ctas != 0) {
            text += " ctas " + std::to_string(options.min_ctas) + " to "
                    + std::to_string(options.max_ctas);
        }
        if (options.cluster_size) {
            text += " cluster " + std::to_string(*options.cluster_size);
        }
        if (options.cta_policy != cuda::NcclCtaPolicy::library) {
            text += " policy " + std::to_string(static_cast<int>(options.cta_policy));
        }
        return text;
    }

    Result result_of(char const* function) {
        auto const found = results.find(function);
        return found == results.end() ? Result::success : found->second;
    }

    Result note(char const* function, std::string const& arguments = "") {
        _journal->add(arguments.empty() ? function : std::string(function) + ' ' + arguments);
        if (on_call) {
            on_call(function);
        }
        return result_of(function);
    }

    [[nodiscard]] std::string address(void const* memory) const {
        return memory == nullptr ? "null"
                                 : std::to_string(static_cast<std::byte const*>(memory) - base);
    }
    [[nodiscard]] std::string text(void const* send, void* receive, std::size_t count,
                                   Type type) const {
        constexpr char const* names[] = {"float32", "bfloat16", "float16", "int64", "uint8"};
        return address(send) + " -> " + address(receive) + ", " + std::to_string(count) + ' '
               + names[static_cast<std::size_t>(type)];
    }
    static std::string text(Reduction reduction) {
        return reduction == Reduction::sum ? " sum" : " min";
    }

    Journal* _journal;
};

class ScriptedSystem : public cuda::NcclSystem {
public:
    explicit ScriptedSystem(Journal& journal) : _journal(&journal) { device = 0; }

    int devices = 4;
    inline static thread_local int device = 0; ///< each thread has its own
    std::map<std::string, int> results;        ///< results by function; 0 by default
    std::map<std::string, std::string> variables;
    std::atomic<bool> are_events_complete{true};
    std::atomic<int> completions{
        0}; ///< further event queries that report completion in spite of it
    bool is_captured = false;
    std::atomic<int> live_events{0};
    std::atomic<std::int64_t> time{0}; ///< milliseconds
    std::int64_t step = 1;             ///< milliseconds that a pause takes
    std::function<void()> on_pause;
    bool hangs = false;   ///< work with a limit takes longer than the limit
    int hanging_runs = 0; ///< the next runs with a limit wait for `end_of_hanging_run`
    std::function<void()> end_of_hanging_run;

    int device_count(int& count) noexcept override {
        count = devices;
        return result_of("device_count");
    }
    int current_device(int& current) noexcept override {
        current = device;
        return result_of("current_device");
    }
    int set_device(int chosen) noexcept override {
        device = chosen;
        _journal->add("set_device " + std::to_string(chosen));
        return result_of("set_device");
    }
    char const* error_string(int) noexcept override { return "an illegal memory access"; }

    int create_event(EventHandle& event) noexcept override {
        ++live_events;
        event = this;
        return result_of("create_event");
    }
    int record_event(EventHandle, cuda::StreamHandle) noexcept override {
        _journal->add("record");
        return result_of("record_event");
    }
    int is_event_complete(EventHandle, bool& is_complete) noexcept override {
        is_complete = are_events_complete || completions > 0;
        completions -= completions > 0 ? 1 : 0;
        return result_of("is_event_complete");
    }
    void destroy_event(EventHandle) noexcept override { --live_events; }
    int is_capturing(cuda::StreamHandle, bool& is_capturing) noexcept override {
        is_capturing = is_captured;
        return 0;
    }

    Duration now() noexcept override { return Duration(time); }
    void pause(unsigned) noexcept override {
        time += step;
        if (on_pause) {
            on_pause();
        }
    }

    bool run_bounded(int on_device, cuda::NcclWork work, cuda::NcclLibrary& nccl,
                     cuda::NcclHandle handle, Duration limit) noexcept override {
        bool const waits = hanging_runs > 0;
        if (waits) {
            --hanging_runs;
            end_of_hanging_run = [work, &nccl, handle] { work(nccl, handle); };
        } else {
            work(nccl, handle);
        }
        if (hangs || waits) {
            time += limit.count();
            _journal->add("left to itself after " + std::to_string(limit.count())
                          + " ms, on device " + std::to_string(on_device));
        }
        return !hangs && !waits;
    }

    char const* variable(char const* name) noexcept override {
        auto const found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    }
    void set_variable(char const* name, char const* value) noexcept override {
        _journal->add(std::string(name) + '=' + (value == nullptr ? "(none)" : value));
        if (value == nullptr) {
            variables.erase(name);
        } else {
            variables[name] = value;
        }
    }

private:
    int result_of(char const* function) {
        auto const found = results.find(function);
        return found == results.end() ? 0 : found->second;
    }

    Journal* _journal;
};

/// @brief The scripted interfaces and communicators on them: rank 1 of 3 unless the script says
/// otherwise.
struct Script {
    using Communicator = cuda::BasicNcclCommunicator<HostBackend>;
    using Lines = std::vector<std::string>;

    Journal journal;
    ScriptedNccl nccl{journal};
    ScriptedSystem system{journal};
    cuda::NcclOptions options{.time_out = std::chrono::milliseconds(100),
                              .finish_time_out = std::chrono::milliseconds(50),
                              .watch_interval = std::chrono::milliseconds(0),
                              .mode = cuda::NcclMode::non_blocking};
    std::byte memory[1024]{};

    Script() { nccl.base = memory; }

    [[nodiscard]] cuda::NcclInterface interfaces() { return {&nccl, &system}; }

    /// Returns a communicator that owns its handle, and empties the journal.
    [[nodiscard]] Communicator communicator() {
        auto made = Communicator::from_unique_id(interfaces(), {}, nccl.rank, nccl.world, options);
        (void)journal.take();
        return made;
    }

    /// Returns the address `byte` bytes after the start of `memory`. The address may be past the
    /// end, because nothing is read there.
    template <class T>
    [[nodiscard]] T* at(std::size_t byte) {
        return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(memory) + byte);
    }

    static host::Queue* queue() { return HostBackend::default_compute_queue(); }
};

} // namespace zero::test
