#pragma once

#include <zero/comm/loopback.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace zero::test {

/// Passes calls on without their tags, as a transport that sends none does. Ranks that differ only
/// in a tag get each other's data.
class Untagged {
public:
    using policy_category = CommunicatorCategory;
    using Backend = HostBackend;
    using Queue = Backend::Queue;
    using Cuts = std::span<std::size_t const>;

    explicit Untagged(LoopbackCommunicator& inner) : _inner(&inner) {}
    [[nodiscard]] int rank() const { return _inner->rank(); }
    [[nodiscard]] int size() const { return _inner->size(); }

    template <class T>
    void reduce_scatter(T const* send, T* receive, Cuts cuts, Queue queue, CollectiveTag = {}) {
        _inner->reduce_scatter(send, receive, cuts, queue);
    }
    template <class T>
    void all_gather(T const* send, T* receive, Cuts cuts, Queue queue, CollectiveTag = {}) {
        _inner->all_gather(send, receive, cuts, queue);
    }
    template <class T>
    void all_reduce(T const* send, T* receive, Cuts cuts, Queue queue, CollectiveTag = {}) {
        _inner->all_reduce(send, receive, cuts, queue);
    }
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag = {}) {
        _inner->broadcast(buffer, elements, root, queue);
    }
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag = {}) {
        _inner->all_reduce_integers(values, elements, reduction, queue);
    }
    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _inner->abort(cause, is_provisional);
    }

private:
    LoopbackCommunicator* _inner;
};

} // namespace zero::test
