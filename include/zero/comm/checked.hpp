#pragma once

#include "../core/buffer.hpp"
#include "../core/error.hpp"
#include "communicator.hpp"
#include "traffic_count.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// @brief A communicator that compares operation, type, counts and tag over the ranks before each collective of another one.
///
/// For transports that would hang or mix data up when ranks call different collectives. It costs a small all-gather and a wait on the host
/// per call. Engines on it also compare which parameters got gradients, under UnusedParameters::error.
/// @throws CollectiveMismatch on every rank, naming both sides
template <class C>
class Checked {
public:
    using policy_category = CommunicatorCategory;
    using Backend = typename C::Backend;
    using Queue = typename Backend::Queue;
    static constexpr bool is_checked = true;

    explicit Checked(C& inner) : _inner(&inner), _signatures(Backend::default_memory(), static_cast<std::size_t>(inner.size()) * words, BufferKind::control) {
        for (std::size_t rank = 0; rank <= static_cast<std::size_t>(inner.size()); ++rank) {
            _cuts.push_back(rank * words);
        }
        _host.resize(_signatures.size());
    }

    [[nodiscard]] int rank() const noexcept { return _inner->rank(); }
    [[nodiscard]] int size() const noexcept { return _inner->size(); }

    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag = {}) {
        compare(CollectiveKind::reduce_scatter, dtype_of<T>(), cuts, queue, tag);
        _inner->reduce_scatter(send, receive, cuts, queue, tag);
    }

    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag = {}) {
        compare(CollectiveKind::all_gather, dtype_of<T>(), cuts, queue, tag);
        _inner->all_gather(send, receive, cuts, queue, tag);
    }

    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag = {}) {
        compare(CollectiveKind::all_reduce, dtype_of<T>(), cuts, queue, tag);
        _inner->all_reduce(send, receive, cuts, queue, tag);
    }

    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        std::array<std::size_t, 2> const counts{static_cast<std::size_t>(root), elements};
        compare(CollectiveKind::broadcast, dtype_of<T>(), counts, queue, tag);
        _inner->broadcast(buffer, elements, root, queue, tag);
    }

    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction, Queue queue, CollectiveTag tag = {}) {
        std::array<std::size_t, 2> const counts{static_cast<std::size_t>(reduction), elements};
        compare(CollectiveKind::integers, DType::int64, counts, queue, tag);
        _inner->all_reduce_integers(values, elements, reduction, queue, tag);
    }

    void abort(std::string_view cause, bool is_provisional = false) noexcept { _inner->abort(cause, is_provisional); }

private:
    static constexpr std::size_t words = 8;
    static constexpr std::size_t text_words = 4;
    using Signature = std::array<std::uint64_t, words>; ///< kind and type, count, hash of cuts, index, text of the tag

    void compare(CollectiveKind kind, DType type, std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag) {
        Signature const own = sign(kind, type, cuts, tag);
        std::uint64_t* const mine = _signatures.data() + _cuts[static_cast<std::size_t>(rank())];
        Backend::copy_bytes(queue, mine, own.data(), sizeof(own));
        _inner->all_gather(static_cast<std::uint64_t const*>(mine), _signatures.data(), _cuts, queue, CollectiveTag{"signatures", 0});
        Backend::copy_bytes(queue, _host.data(), _signatures.data(), _signatures.size_bytes());
        Backend::synchronize(Backend::record(queue));
        for (std::size_t other = 1; other + 1 < _cuts.size(); ++other) {
            if (!std::equal(_host.begin(), _host.begin() + words, _host.begin() + static_cast<std::ptrdiff_t>(_cuts[other]))) {
                std::string const difference = "rank 0 called " + describe(0) + ", rank " + std::to_string(other) + " called " + describe(other);
                abort(difference);
                throw CollectiveMismatch("zero: " + difference + "; every rank has to call the same collectives in the same order.");
            }
        }
    }

    static Signature sign(CollectiveKind kind, DType type, std::span<std::size_t const> cuts, CollectiveTag tag) noexcept {
        Signature signature{static_cast<std::uint64_t>(kind) * 256 + static_cast<std::uint64_t>(type), cuts.back(), 14695981039346656037U, tag.index};
        for (std::size_t const cut : cuts) {
            signature[2] = (signature[2] ^ cut) * 1099511628211U;
        }
        for (std::size_t letter = 0; letter < text_words * 8 && tag.what[letter] != '\0'; ++letter) {
            signature[4 + letter / 8] |= std::uint64_t{static_cast<unsigned char>(tag.what[letter])} << (letter % 8 * 8);
        }
        return signature;
    }

    [[nodiscard]] std::string describe(std::size_t rank) const {
        std::uint64_t const* const signature = _host.data() + _cuts[rank];
        std::string text;
        for (std::size_t letter = 0; letter < text_words * 8; ++letter) {
            auto const code = static_cast<char>(signature[4 + letter / 8] >> (letter % 8 * 8) & 255U);
            text += code == '\0' ? std::string() : std::string(1, code);
        }
        return std::string(name_of(static_cast<CollectiveKind>(signature[0] / 256))) + " of " + std::to_string(signature[1]) + ' ' + name_of(static_cast<DType>(signature[0] % 256))
             + " ('" + text + ' ' + std::to_string(signature[3]) + "', cuts " + std::to_string(signature[2] % 10000) + ')';
    }

    C* _inner;
    Buffer<std::uint64_t> _signatures;
    std::vector<std::size_t> _cuts;
    std::vector<std::uint64_t> _host;
};

} // namespace zero
