#pragma once

/// @file
/// @brief The tables of gradients that the communicator reads where they lie. A step that has none
/// executes nothing of it.

#include "../../../comm/communicator.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/piece.hpp"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The tables of caller-owned gradients that the communicator reads where they lie. Peers
/// read them until the commands that follow a reduction.
template <class G, class Backend>
class GradientPieces {
public:
    GradientPieces() = default;

    /// @param callers per parameter: its caller-owned gradient
    /// @param is_sent whether the gradients of a bucket are sent in pieces
    template <class IsSent>
    [[gnu::cold]] GradientPieces(FlatLayout const& layout, List<G*> const& callers,
                                 IsSent const& is_sent) {
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            _first.push_back(_rows.size());
            for (Piece const& piece : layout.pieces(bucket)) {
                if (is_sent(bucket) && piece.elements != 0) {
                    G const* const data = callers[piece.parameter] + piece.parameter_begin;
                    _rows.push_back({data, piece.bucket_begin, piece.elements});
                    _gradients.push_back({data, piece.parameter, true});
                }
            }
        }
        _first.push_back(_rows.size());
    }

    [[nodiscard]] bool is_empty() const noexcept { return _rows.size() == 0; }

    [[nodiscard]] bool has(std::size_t bucket) const noexcept {
        return !is_empty() && _first[bucket] != _first[bucket + 1];
    }

    /// @brief Returns the pieces of a bucket. Those of gradients that were not written are zeros.
    template <class Written>
    [[nodiscard]] SentPieces<G> of(std::size_t bucket, typename Backend::Queue queue,
                                   Written const& is_written) {
        static constexpr void const* none = nullptr;
        for (std::size_t row = _first[bucket]; row < _first[bucket + 1]; ++row) {
            Gradient& gradient = _gradients[row];
            if (bool const is_sent = is_written(gradient.parameter); is_sent != gradient.is_sent) {
                gradient.is_sent = is_sent; // commands of an earlier micro-step may read the row
                Backend::copy_bytes(queue, &_rows[row].data, is_sent ? &gradient.data : &none,
                                    sizeof(void const*));
            }
        }
        return {{_rows.data() + _first[bucket], _first[bucket + 1] - _first[bucket]}};
    }

private:
    struct Gradient {
        void const* data;
        std::size_t parameter;
        bool is_sent; ///< whether the row names it once all commands have run
    };

    List<SentPiece> _rows;
    List<Gradient> _gradients;       ///< by row
    std::vector<std::size_t> _first; ///< by bucket: its first row; then their number; empty: none
};

/// @brief Gradients that were handed over with an owner, which stay where they are until commands
/// of their bucket's reduction have read them. Allocates when the first one arrives.
template <class G, class Backend>
class OwnedGradients {
public:
    using Event = typename Backend::Event;
    using Owner = std::shared_ptr<void const>;

    /// @brief Whether gradients of a bucket were handed over and not yet sent.
    [[nodiscard]] bool has(std::size_t bucket) const noexcept {
        return !_buckets.empty() && _buckets[bucket].is_begun;
    }

    void hold(FlatLayout const& layout, PiecePosition at, G const* data, Owner const& owner) {
        if (_buckets.empty()) {
            _buckets = List<Bucket>(layout.trainable_buckets());
        }
        Bucket& own = _buckets[at.bucket];
        if (!std::exchange(own.is_begun, true)) {
            release(own);
        }
        if (own.rows.empty()) {
            for (Piece const& piece : layout.pieces(at.bucket)) {
                own.rows.push_back({nullptr, piece.bucket_begin, piece.elements});
            }
            own.owners = List<Owner>(own.rows.size());
        }
        own.rows[at.index].data = data;
        own.owners[at.index] = owner;
    }

    /// @brief Returns the pieces of a bucket. Those that were not handed over are zeros.
    [[nodiscard]] SentPieces<G> of(std::size_t bucket) const noexcept {
        return {as_span(_buckets[bucket].rows)};
    }

    /// @brief Returns where a gradient lies that no longer counts as one of the pieces; null if it
    /// was none.
    [[nodiscard]] G const* take(PiecePosition at) noexcept {
        void const* const data =
            has(at.bucket) ? std::exchange(_buckets[at.bucket].rows[at.index].data, nullptr)
                           : nullptr;
        return static_cast<G const*>(data);
    }

    /// @brief Ends a bucket, which commands read until `read`. Waits for the last bucket but one,
    /// so that a backward pass that is ahead of the reductions does not keep all its gradients.
    void end(std::size_t bucket, Event read) {
        _buckets[bucket].read = std::move(read);
        _buckets[bucket].is_begun = false;
        if (_last_but_one < _buckets.size() && _last_but_one != bucket
            && !_buckets[_last_but_one].is_begun) {
            release(_buckets[_last_but_one]);
        }
        _last_but_one = std::exchange(_last, bucket);
    }

    /// @brief Ends all buckets without a reduction; see `end`.
    void end_all(Event const& read) {
        for (Bucket& own : _buckets) {
            if (std::exchange(own.is_begun, false)) {
                own.read = read;
            }
        }
    }

    /// @brief Waits, and drops all owners.
    void release_all() {
        for (Bucket& own : _buckets) {
            release(own);
        }
    }

private:
    struct Bucket {
        List<SentPiece> rows; ///< by piece
        List<Owner> owners;   ///< by piece
        Event read{};
        bool is_begun = false;
    };

    static void release(Bucket& own) {
        Backend::synchronise(own.read);
        for (std::size_t row = 0; row < own.rows.size(); ++row) {
            own.rows[row].data = nullptr;
            own.owners[row].reset();
        }
    }

    List<Bucket> _buckets;
    std::size_t _last = static_cast<std::size_t>(-1); ///< the last bucket that was ended
    std::size_t _last_but_one = _last;
};

} // namespace ZERO_NAMESPACE::detail
