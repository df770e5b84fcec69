#pragma once

#include "../core/buffer.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/memory_resource.hpp"
#include "../core/policy_category.hpp"
#include "../ops/arithmetic.hpp"
#include "communicator.hpp"
#include "detail/collective_call.hpp"
#include "detail/wait_for_collectives.hpp"
#include "traffic_count.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief A communicator that compares operation, type, counts and tag over the ranks before each
/// collective of another one.
///
/// For transports that would hang or mix data up when ranks call different collectives. It costs a
/// small all-gather and a wait on the host per call: it *synchronises the queue*. All ranks of the
/// group use it, or none. Of a tag's text the first 32 characters are compared. Engines on it also
/// compare which parameters got gradients, under UnusedParameters::error.
/// @throws CollectiveMismatch on every rank, naming both sides
template <class C>
class Checked {
public:
    using policy_category = CommunicatorCategory;
    using Backend = typename C::Backend;
    using Queue = typename Backend::Queue;
    static constexpr bool is_checked = true;

    /// @param inner outlives this object
    explicit Checked(C& inner)
        : _inner(&inner),
          _signatures(Backend::default_memory(), static_cast<std::size_t>(inner.size()) * words,
                      BufferKind::control) {
        for (std::size_t rank = 0; rank <= static_cast<std::size_t>(inner.size()); ++rank) {
            _cuts.push_back(rank * words);
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

    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        compare(cut_call(CollectiveKind::reduce_scatter, dtype_of<T>(), cuts, tag), queue);
        _inner->reduce_scatter(send, receive, cuts, queue, tag);
    }

    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        compare(cut_call(CollectiveKind::all_gather, dtype_of<T>(), cuts, tag), queue);
        _inner->all_gather(send, receive, cuts, queue, tag);
    }

    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        compare(cut_call(CollectiveKind::all_reduce, dtype_of<T>(), cuts, tag), queue);
        _inner->all_reduce(send, receive, cuts, queue, tag);
    }

    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        compare({CollectiveKind::broadcast, dtype_of<T>(), elements,
                 static_cast<std::uint64_t>(root), tag},
                queue);
        _inner->broadcast(buffer, elements, root, queue, tag);
    }

    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {}) {
        compare({CollectiveKind::integers, DType::int64, elements,
                 static_cast<std::uint64_t>(reduction), tag},
                queue);
        _inner->all_reduce_integers(values, elements, reduction, queue, tag);
    }

    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _inner->abort(cause, is_provisional);
    }

    void rethrow_failure()
        requires requires(C& inner) { inner.rethrow_failure(); }
    {
        _inner->rethrow_failure();
    }

    /// @brief All that this rank enqueued is ordered before all that it will.
    void forget_events() noexcept
        requires requires(C& inner) { inner.forget_events(); }
    {
        _inner->forget_events();
    }

private:
    static constexpr std::size_t text_begin = 4;
    static constexpr std::size_t text_bytes = 32;
    static constexpr std::size_t words = text_begin + text_bytes / 8;
    using Signature =
        std::array<std::uint64_t, words>; ///< kind and type, count, detail, index, text of the tag

    static detail::CollectiveCall cut_call(CollectiveKind kind, DType type,
                                           std::span<std::size_t const> cuts,
                                           CollectiveTag tag) noexcept {
        return {kind, type, cuts.empty() ? 0 : cuts.back(), detail::hash_of(cuts), tag};
    }

    void compare(detail::CollectiveCall const& call, Queue queue) {
        Backend::rethrow_failure(
            queue); // its commands are skipped, so what follows would compare nothing
        _own = sign(call);
        try {
            gather(queue);
        } catch (...) { // the commands that were enqueued use this object's memory
            Backend::synchronise(Backend::record(queue));
            throw;
        }
        for (std::size_t other = 1; other + 1 < _cuts.size(); ++other) {
            if (std::memcmp(_host.data(), _host.data() + _cuts[other], words * sizeof(_host[0]))
                != 0) {
                std::array<Text, 2> texts{};
                std::string const difference =
                    describe(read(0, texts[0]), other, read(other, texts[1]));
                abort(difference);
                detail::throw_error<CollectiveMismatch>(
                    {"zero: ", difference,
                     "; every rank has to call the same collectives in the same order."});
            }
        }
    }

    void gather(Queue queue) {
        std::uint64_t* const mine = _signatures.data() + _cuts[static_cast<std::size_t>(rank())];
        Backend::copy_bytes(queue, mine, _own.data(), sizeof(_own));
        _inner->all_gather(static_cast<std::uint64_t const*>(mine), _signatures.data(), _cuts,
                           queue, CollectiveTag{"signatures", 0});
        Backend::copy_bytes(queue, _host.data(), _signatures.data(), _signatures.size_bytes());
        detail::wait_for_collectives(*_inner, queue);
    }

    static Signature sign(detail::CollectiveCall const& call) noexcept {
        Signature signature{static_cast<std::uint64_t>(call.kind) * 256
                                + static_cast<std::uint64_t>(call.type),
                            call.count, call.detail, call.tag.index};
        for (std::size_t letter = 0; letter < text_bytes && call.tag.what[letter] != '\0';
             ++letter) {
            signature[text_begin + letter / 8] |=
                std::uint64_t{static_cast<unsigned char>(call.tag.what[letter])}
                << (letter % 8 * 8);
        }
        return signature;
    }

    using Text = std::array<char, text_bytes + 1>;

    /// What a rank signed; its tag points into `text`.
    [[nodiscard]] detail::CollectiveCall read(std::size_t rank, Text& text) const noexcept {
        std::uint64_t const* const signature = _host.data() + _cuts[rank];
        for (std::size_t letter = 0; letter < text_bytes; ++letter) {
            text[letter] =
                static_cast<char>(signature[text_begin + letter / 8] >> (letter % 8 * 8) & 255U);
        }
        return {static_cast<CollectiveKind>(signature[0] / 256),
                static_cast<DType>(signature[0] % 256),
                static_cast<std::size_t>(signature[1]),
                signature[2],
                {text.data(), static_cast<std::size_t>(signature[3])}};
    }

    C* _inner;
    Buffer<std::uint64_t> _signatures;
    std::vector<std::size_t> _cuts;
    std::vector<std::uint64_t> _host;
    Signature _own{};
};

} // namespace ZERO_NAMESPACE
