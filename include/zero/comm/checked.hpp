#pragma once

#include "../core/buffer.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/dtype.hpp"
#include "../core/memory_resource.hpp"
#include "collective_tag.hpp"
#include "detail/collective_call.hpp"
#include "detail/decorator.hpp"
#include "detail/optional_operations.hpp"
#include "traffic_count.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief A communicator that compares operation, type, counts and tag between ranks before each
/// collective of another communicator.
///
/// For transports that would hang or corrupt data when ranks call different collectives. It costs a
/// small all-gather and a wait on the host per call: it *synchronises the queue*. Either all ranks
/// of the group use it or none. Only the first 32 characters of a tag's text are compared. With
/// UnusedParameters::error, engines on it also compare which parameters got gradients.
/// It has the operations of the other one, the optional ones included.
/// @throws CollectiveMismatch, in every collective, on every rank, naming both calls
template <class C>
class Checked : public detail::CommunicatorDecorator<Checked<C>, C> {
    using Base = detail::CommunicatorDecorator<Checked, C>;
    friend Base;

public:
    using Backend = typename Base::Backend;
    using Queue = typename Base::Queue;
    static constexpr bool is_checked = true;
    static constexpr bool compares_calls = true;

    /// @param inner the communicator that moves the data; must outlive this object
    /// @param memory the resource of the scratch memory; must outlive this object
    explicit Checked(C& inner, MemoryResource& memory = Backend::default_memory())
        : Base(inner),
          _signatures(memory, static_cast<std::size_t>(inner.size()) * detail::CallSignature::words,
                      BufferKind::communicator),
          _cuts(detail::uniform_cuts(static_cast<std::size_t>(inner.size()),
                                     detail::CallSignature::words)),
          _host(_signatures.size()) {}

    /// @brief See `Communicator`. Includes the scratch memory of the inner communicator.
    [[nodiscard]] std::size_t scratch_bytes(std::size_t largest_bucket_bytes) const noexcept {
        return _signatures.size_bytes()
               + detail::scratch_bytes_of(this->inner(), largest_bucket_bytes);
    }

    /// @brief Hides the operation: each call is compared, which waits.
    template <class Body>
    void grouped(Queue queue, Body const& body) = delete;

private:
    /// Does not check the arguments: the inner communicator does.
    template <class T, class Forward>
    void around(detail::DecoratedCall const& call, Queue queue, Forward const& forward) {
        bool const has_cuts =
            call.kind != CollectiveKind::broadcast && call.kind != CollectiveKind::integers;
        compare({call.kind, dtype_of<T>(), call.count,
                 has_cuts ? detail::hash_of(call.cuts) : call.detail, call.tag},
                queue);
        forward();
    }

    void compare(detail::CollectiveCall const& call, Queue queue) {
        // a queue that failed skips its commands, so the comparison would use undefined values
        Backend::rethrow_failure(queue);
        _own = detail::CallSignature::of(call);
        try {
            gather_signatures(queue);
        } catch (...) { // enqueued commands use the memory of this object
            Backend::synchronise(Backend::record(queue));
            throw;
        }
        std::string const difference =
            detail::CallSignature::first_difference({_host.data(), _host.size()});
        if (!difference.empty()) {
            this->abort(difference);
            detail::throw_mismatch(difference);
        }
    }

    void gather_signatures(Queue queue) {
        std::uint64_t* const mine =
            _signatures.data() + _cuts[static_cast<std::size_t>(this->rank())];
        Backend::copy_bytes(queue, mine, _own.data(), sizeof(_own));
        this->inner().all_gather(static_cast<std::uint64_t const*>(mine), _signatures.data(), _cuts,
                                 queue, CollectiveTag{"signatures", 0});
        detail::wait_for_collectives(this->inner(), queue); // as in `through_backend`
        Backend::copy_bytes(queue, _host.data(), _signatures.data(), _signatures.size_bytes());
        detail::wait_for_collectives(this->inner(), queue);
    }

    Buffer<std::uint64_t> _signatures;
    std::vector<std::size_t> _cuts;
    std::vector<std::uint64_t> _host;
    detail::CallSignature::Words _own{};
};

} // namespace ZERO_NAMESPACE
