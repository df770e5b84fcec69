#pragma once

#include "../../comm/detail/collective_call.hpp"
#include "../../comm/detail/failure_record.hpp"
#include "../../core/detail/namespace.hpp"

#include <atomic>
#include <c10/util/intrusive_ptr.h>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace ZERO_NAMESPACE::torch::detail {

using zero::detail::FailureKind;

/// @brief The failure of a group, and the records that its ranks exchange outside their
/// collectives: the cause of a failure, that a rank has left, and the collective in which it waits.
/// Ranks write records to a store, and read them while they wait. Without a store each rank knows
/// only its own failure.
///
/// No function throws because of the store: a store that fails is no longer used.
class GroupRecords {
public:
    /// @param store may be null
    /// @param group a name that differs between the process groups of a store
    GroupRecords(c10::intrusive_ptr<c10d::Store> store, std::string_view group, int rank,
                 int world) noexcept;

    /// @brief Keeps the failure and tells the peers. Any thread may call it.
    void fail(FailureKind kind, std::string_view cause, bool is_provisional) noexcept;

    /// @brief Begins a collective. Only the thread that runs the commands may call it, and all
    /// functions below except `throw_if_final`.
    void begin(zero::detail::CallSignature::Words const& call);

    /// @brief Returns a text about the collective that runs.
    [[nodiscard]] std::string current_call();

    /// @brief Reads what the peers wrote. A peer that left before this rank's collective has failed
    /// the group.
    void look() noexcept;

    /// @brief Waits while the failure is provisional: a better cause may come.
    void settle() noexcept;

    [[nodiscard]] bool has_failed() const noexcept { return _failure.has_failed(); }

    /// @brief Throws if there is a final failure. A mismatch is thrown as such once.
    /// Any thread may call it. @throws Aborted, CollectiveMismatch
    void throw_if_final();

    /// @brief Tells the peers that this rank waits in its collective.
    void tell_waiting() noexcept;

    /// @brief Tells the peers that this rank takes part in no other collective.
    void tell_leaving() noexcept;

    /// @brief Names the ranks that do not wait in this collective or a later one.
    [[nodiscard]] std::string missing() noexcept;

private:
    /// Calls `use(store)`, unless there is none or it has failed.
    template <class Use>
    void with_store(Use const& use) noexcept;

    [[nodiscard]] std::string key(char const* name, int rank) const;
    [[nodiscard]] std::string key(char const* name) const { return _prefix + name; }
    [[nodiscard]] std::string describe_call() const; ///< under the lock
    void keep(FailureKind kind, std::string_view cause, bool is_provisional) noexcept;

    c10::intrusive_ptr<c10d::Store> _store;
    std::atomic<bool> _has_store{false};
    std::string _prefix;
    int _rank;
    int _world;
    std::mutex _mutex; ///< guards the failure and the call
    std::condition_variable _changed;
    zero::detail::FailureRecord _failure;
    bool _was_thrown = false;
    std::uint64_t _number = 0; ///< number of the collective that runs
    zero::detail::CallSignature::Words _call{};
};

} // namespace ZERO_NAMESPACE::torch::detail

#if !defined(ZERO_COMPILED)
#include "group_records.ipp"
#endif
