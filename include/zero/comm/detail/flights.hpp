#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../host/event.hpp"
#include "../../host/queue.hpp"
#include "collective_call.hpp"
#include "flight.hpp"

#include <atomic>
#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief The collectives that were called and have not run, as commands of a host queue. The
/// arguments of a call are copied into storage that is reused when its command is done. Transports
/// between processes use it.
class Flights {
public:
    Flights() = default;
    explicit Flights(std::size_t world);

    /// @brief Enqueues `run(flight)`. Collectives run in the order of the calls, even on several
    /// queues. Waits only while all storage is in flight.
    /// @param call a call whose arguments were checked
    /// @param run a trivially copyable functor
    /// @throws OutOfOrder if another thread is in a call
    template <class Run>
    void enqueue(CollectiveCall const& call, CollectiveMemory const& memory, host::Queue* queue,
                 Run const& run) {
        OneThread const one(*this, call);
        Flight& flight = next(call, memory);
        queue->wait(_last);
        queue->enqueue([run, &flight] { run(flight); });
        flight.done = queue->record();
        _last = flight.done;
    }

    /// @brief Waits until all commands are done.
    void synchronise() const;

private:
    /// The only thread in a call.
    class OneThread {
    public:
        OneThread(Flights& flights, CollectiveCall const& call) : _is_in_use(flights._is_in_use) {
            if (_is_in_use.exchange(true, std::memory_order_acq_rel)) {
                throw_second_thread(call.tag);
            }
        }
        OneThread(OneThread const&) = delete;
        OneThread& operator=(OneThread const&) = delete;
        ~OneThread() { _is_in_use.store(false, std::memory_order_release); }

    private:
        std::atomic_ref<bool> _is_in_use;
    };

    [[nodiscard]] Flight& next(CollectiveCall const& call, CollectiveMemory const& memory);

    bool _is_in_use = false; ///< a thread enqueues
    List<Flight> _flights;
    std::size_t _count = 0; ///< number of calls
    host::Event _last{};
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "flights.ipp"
#endif
