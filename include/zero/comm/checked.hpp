#pragma once

#include "../core/buffer.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/dtype.hpp"
#include "../core/memory_resource.hpp"
#include "../core/policy_category.hpp"
#include "collective_tag.hpp"
#include "communicator.hpp"
#include "detail/collective_call.hpp"
#include "detail/scratch_bytes_of.hpp"
#include "detail/wait_for_collectives.hpp"
#include "traffic_count.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief A communicator that compares operation, type, counts and tag between ranks before each
/// collective of another communicator.
///
/// For transports that would hang or corrupt data when ranks call different collectives. It costs a
/// small all-gather and a wait on the host per call: it *synchronises the queue*. Either all ranks
/// of the group use it or none. Only the first 32 characters of a tag's text are compared. With
/// UnusedParameters::error, engines on it also compare which parameters got gradients.
/// @throws CollectiveMismatch on every rank, naming both calls
template <class C>
class Checked {
public:
    using policy_category = CommunicatorCategory;
    using Backend = typename C::Backend;
    using Queue = typename Backend::Queue;
    static constexpr bool is_checked = true;
    static constexpr bool compares_calls = true;

    /// @param inner the communicator that moves the data; must outlive this object
    /// @param memory the resource of the scratch memory; must outlive this object
    explicit Checked(C& inner, MemoryResource& memory = Backend::default_memory())
        : _inner(&inner),
          _signatures(memory, static_cast<std::size_t>(inner.size()) * detail::CallSignature::words,
                      BufferKind::communicator) {
        for (std::size_t rank = 0; rank <= static_cast<std::size_t>(inner.size()); ++rank) {
            _cuts.push_back(rank * detail::CallSignature::words);
        }
        _host.resize(_signatures.size());
    }

    [[nodiscard]] int rank() const noexcept { return _inner->rank(); }
    [[nodiscard]] int size() const noexcept { return _inner->size(); }

    /// @brief See `Communicator`.
    [[nodiscard]] std::uint64_t options_hash() const noexcept
        requires requires(C const& inner) { inner.options_hash(); }
    {
        return _inner->options_hash();
    }

    /// @brief See `Communicator`. Includes the scratch memory of the inner communicator.
    [[nodiscard]] std::size_t scratch_bytes(std::size_t largest_bucket_bytes) const noexcept {
        return _signatures.size_bytes() + detail::scratch_bytes_of(*_inner, largest_bucket_bytes);
    }

    /// @brief See `Communicator`. @throws CollectiveMismatch
    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        compare(cut_call(CollectiveKind::reduce_scatter, dtype_of<T>(), cuts, tag), queue);
        _inner->reduce_scatter(send, receive, cuts, queue, tag);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        compare(cut_call(CollectiveKind::all_gather, dtype_of<T>(), cuts, tag), queue);
        _inner->all_gather(send, receive, cuts, queue, tag);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        compare(cut_call(CollectiveKind::all_reduce, dtype_of<T>(), cuts, tag), queue);
        _inner->all_reduce(send, receive, cuts, queue, tag);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        compare({CollectiveKind::broadcast, dtype_of<T>(), elements,
                 static_cast<std::uint64_t>(root), tag},
                queue);
        _inner->broadcast(buffer, elements, root, queue, tag);
    }

    /// @copydoc reduce_scatter
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {}) {
        compare({CollectiveKind::integers, DType::int64, elements,
                 static_cast<std::uint64_t>(reduction), tag},
                queue);
        _inner->all_reduce_integers(values, elements, reduction, queue, tag);
    }

    /// @brief See `Communicator`.
    void all_reduce_integers(std::int64_t* values, std::size_t sums, std::size_t minima,
                             Queue queue, CollectiveTag tag = {})
        requires detail::ReducesIntegersTogether<C>
    {
        compare({CollectiveKind::integers, DType::int64, sums + minima,
                 detail::CollectiveCall::detail_of(sums), tag},
                queue);
        _inner->all_reduce_integers(values, sums, minima, queue, tag);
    }

    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _inner->abort(cause, is_provisional);
    }

    void rethrow_failure()
        requires requires(C& inner) { inner.rethrow_failure(); }
    {
        _inner->rethrow_failure();
    }

    /// @brief See `Communicator`.
    void synchronise()
        requires requires(C& inner) { inner.synchronise(); }
    {
        _inner->synchronise();
    }

    /// @brief See `Communicator`.
    void forget_events() noexcept
        requires requires(C& inner) { inner.forget_events(); }
    {
        _inner->forget_events();
    }

private:
    /// Does not check the arguments: the inner communicator does.
    static detail::CollectiveCall cut_call(CollectiveKind kind, DType type,
                                           std::span<std::size_t const> cuts,
                                           CollectiveTag tag) noexcept {
        return {kind, type, cuts.empty() ? 0 : cuts.back(), detail::hash_of(cuts), tag};
    }

    void compare(detail::CollectiveCall const& call, Queue queue) {
        // a queue that failed skips its commands, so the comparison would use undefined values
        Backend::rethrow_failure(queue);
        _own = detail::CallSignature::of(call);
        try {
            exchange(queue);
        } catch (...) { // enqueued commands use the memory of this object
            Backend::synchronise(Backend::record(queue));
            throw;
        }
        std::string const difference =
            detail::CallSignature::first_difference({_host.data(), _host.size()});
        if (!difference.empty()) {
            abort(difference);
            detail::throw_mismatch(difference);
        }
    }

    void exchange(Queue queue) {
        std::uint64_t* const mine = _signatures.data() + _cuts[static_cast<std::size_t>(rank())];
        Backend::copy_bytes(queue, mine, _own.data(), sizeof(_own));
        _inner->all_gather(static_cast<std::uint64_t const*>(mine), _signatures.data(), _cuts,
                           queue, CollectiveTag{"signatures", 0});
        Backend::copy_bytes(queue, _host.data(), _signatures.data(), _signatures.size_bytes());
        detail::wait_for_collectives(*_inner, queue);
    }

    C* _inner;
    Buffer<std::uint64_t> _signatures;
    std::vector<std::size_t> _cuts;
    std::vector<std::uint64_t> _host;
    detail::CallSignature::Words _own{};
};

} // namespace ZERO_NAMESPACE
