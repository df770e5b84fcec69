#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/hash.hpp"
#include "../core/memory_resource.hpp"
#include "../core/policy_category.hpp"
#include "../core/set_by_name.hpp"
#include "../ops/tree_sum.hpp"
#include "collective_tag.hpp"
#include "communicator.hpp"
#include "detail/group_place.hpp"
#include "detail/optional_operations.hpp"
#include "detail/run_threads.hpp"
#include "detail/two_levels.hpp"
#include "grouped_communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace ZERO_NAMESPACE {

/// @brief The options of a `Hierarchical` communicator. `scratch_bytes` must be equal on all ranks.
struct HierarchicalOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// @brief The size of the buffer between the two levels of a reduction, at least 128 bytes. If
    /// the part of an inner rank in a bucket is larger, in a tree as floats, the bucket is reduced
    /// in several collectives of this size, which is slower. Not allocated if one level has a
    /// single rank.
    std::size_t scratch_bytes = std::size_t{8} << 20U;

    /// @brief The resource of that buffer, which must outlive the communicator; null:
    /// `Backend::default_memory()`.
    MemoryResource* memory = nullptr;
};

/// @brief A communicator of W = G * R ranks that moves data in two levels: between G ranks that are
/// close to each other (`Intra`), and between R such groups (`Inter`).
///
/// The rank is inner * R + outer: inner is the rank in `Intra`, outer the rank in `Inter`. So the
/// extents of one inner rank are neighbours, and the cuts of each level are a subset of the cuts.
/// In a reduce-scatter or an all-gather of P elements, a rank receives P (G-1)/G inside its group
/// and P (R-1)/(G R) between groups; a flat group would move P (W-1)/W between groups.
///
/// A reduce-scatter sums inside, rounds to the element type, and sums between, in rank order on
/// each level; an all-gather goes the other way. The bits depend on (G, R) and on nothing else.
/// With R = 1 or G = 1 every operation is that of the one level, with its bits.
///
/// For `TreeReduction` the position is outer * G + inner, so the micro-batches of an inner group
/// are consecutive. Their sums travel between the levels as floats, not rounded: 4 bytes per
/// element whatever the element type is. Where G is admissible as W is, they are nodes of the tree,
/// and the bits are those of a flat group.
///
/// A failure on one level aborts the other one, so that it reaches all ranks that call a
/// collective. No call allocates. The destructor waits for commands that use the scratch memory.
template <class Intra, class Inter>
class Hierarchical {
    static_assert(Communicator<Intra> && Communicator<Inter>,
                  "zero: both levels of a Hierarchical communicator must be communicators.");
    static_assert(!detail::HasGroups<Intra> && !detail::HasGroups<Inter>,
                  "zero: a Hierarchical communicator hides the parts of zero::Groups, so an engine "
                  "on it would run flat; give it the parts, or Hierarchical ones to zero::Groups.");
    static_assert(std::is_same_v<typename Intra::Backend, typename Inter::Backend>,
                  "zero: both levels of a Hierarchical communicator need the same Backend.");

public:
    using policy_category = CommunicatorCategory;
    using Backend = typename Intra::Backend;
    using Queue = typename Backend::Queue;
    static constexpr bool is_checked = requires {
        requires Intra::is_checked;
        requires Inter::is_checked;
    };
    static constexpr bool compares_calls = requires {
        requires Intra::compares_calls;
        requires Inter::compares_calls;
    };

    /// @param intra the group of close ranks, of the same size everywhere; must outlive this object
    /// @param inter the ranks with the same rank in their group; must outlive this object
    /// @throws InvalidArgument naming the option
    Hierarchical(Intra& intra, Inter& inter, HierarchicalOptions const& options = {})
        : _intra(&intra), _inter(&inter),
          _levels(place_in(intra), place_in(inter),
                  options.memory != nullptr ? *options.memory : shared_memory(),
                  has_two_levels() ? usable(options.scratch_bytes) : 0) {}

    /// @brief See `Communicator`: of the inner level, or of the outer one.
    [[nodiscard]] MemoryResource& shared_memory() const noexcept {
        if constexpr (requires { _intra->shared_memory(); }) {
            return _intra->shared_memory();
        } else {
            return detail::memory_for(*_inter, nullptr);
        }
    }

    [[nodiscard]] int rank() const noexcept {
        return _intra->rank() * _inter->size() + _inter->rank();
    }
    [[nodiscard]] int size() const noexcept { return _intra->size() * _inter->size(); }

    /// @brief See `Communicator`.
    [[nodiscard]] int position() const noexcept {
        return static_cast<int>(detail::position_of(*_inter) * inner_ranks()
                                + detail::position_of(*_intra));
    }

    /// @brief See `Communicator`. Asks the inner level first: if its ranks together are no node of
    /// the tree, it returns their number.
    [[nodiscard]] std::size_t inadmissible_ranks(ops::MicroBatchTree const& tree) const noexcept {
        ops::MicroBatchTree const inside = tree.inside(inner_ranks());
        if (std::size_t const ranks = detail::inadmissible_ranks_of(*_intra, inside); ranks != 0) {
            return ranks;
        }
        return inside.is_admissible()
                   ? inner_ranks()
                         * detail::inadmissible_ranks_of(*_inter, tree.above(inner_ranks()))
                   : inner_ranks();
    }

    /// @brief See `Communicator`: the reason of a level.
    [[nodiscard]] std::string_view reason_against_tree() const noexcept {
        std::string_view const inside = detail::reason_against_tree(*_intra);
        return inside.empty() ? detail::reason_against_tree(*_inter) : inside;
    }

    /// @brief Returns G, the number of ranks of the inner level.
    [[nodiscard]] std::size_t inner_ranks() const noexcept {
        return static_cast<std::size_t>(_intra->size());
    }

    /// @brief Returns R, the number of ranks of the outer level.
    [[nodiscard]] std::size_t outer_ranks() const noexcept {
        return static_cast<std::size_t>(_inter->size());
    }

    /// @brief See `Communicator`. Includes the scratch memory of both levels.
    [[nodiscard]] std::size_t scratch_bytes(std::size_t largest_bucket_bytes) const noexcept {
        bool const is_one = static_cast<void const*>(_intra) == _inter; // on both levels
        return _levels.scratch_bytes() + detail::scratch_bytes_of(*_intra, largest_bucket_bytes)
               + (is_one ? 0 : detail::scratch_bytes_of(*_inter, largest_bucket_bytes));
    }

    /// @brief See `Communicator`. Includes G and R.
    [[nodiscard]] std::uint64_t options_hash() const noexcept {
        return Hash()
            .add(inner_ranks())
            .add(outer_ranks())
            .add(detail::options_hash_of(*_intra))
            .add(detail::options_hash_of(*_inter))
            .value();
    }

    /// @brief See `Communicator`. @throws CommunicatorError; InvalidArgument before anything is
    /// sent
    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        (void)place().reduce_scatter(dtype_of<T>(), send, receive, cuts, tag);
        on_one_or_both([&](auto& level) { level.reduce_scatter(send, receive, cuts, queue, tag); },
                       [&] {
                           scatter(send, cuts, queue, tag, [&](T const* part, std::size_t begin) {
                               _inter->reduce_scatter(part, receive + begin, _levels.outer_cuts(),
                                                      queue, tag);
                           });
                       });
    }

    /// @brief A reduce-scatter whose result replaces the elements of `sum` or is added to them.
    /// Optional operation of a `Communicator`.
    template <class T, class A>
        requires detail::AccumulatesReduceScatter<Intra, T, A>
                 && detail::AccumulatesReduceScatter<Inter, T, A>
    void reduce_scatter(T const* send, A* sum, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag, bool is_added) {
        (void)place().reduce_scatter(dtype_of<T>(), send, sum, cuts, tag);
        on_one_or_both(
            [&](auto& level) { level.reduce_scatter(send, sum, cuts, queue, tag, is_added); },
            [&] {
                scatter(send, cuts, queue, tag, [&](T const* part, std::size_t begin) {
                    _inter->reduce_scatter(part, sum + begin, _levels.outer_cuts(), queue, tag,
                                           is_added);
                });
            });
    }

    /// @brief A reduce-scatter that adds as a subtree of micro-batches, by position. Optional
    /// operation of a `Communicator`.
    template <class T, class A>
        requires detail::ReduceScattersInTree<Intra, T, A>
                 && detail::ReduceScattersInTree<Intra, T, float>
                 && detail::ReduceScattersInTree<Inter, T, A>
                 && detail::ReduceScattersInTree<Inter, float, A> && detail::HasPosition<Intra>
                 && detail::HasPosition<Inter>
    void reduce_scatter(T const* send, ops::TreeSum<A> const& sum,
                        std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag = {}) {
        (void)place().reduce_scatter(dtype_of<T>(), send, sum.out, cuts, tag);
        auto const world = static_cast<std::size_t>(size());
        ops::MicroBatchTree const tree{world, sum.held.rank_group, world};
        on_one_or_both(
            [&](auto& level) { level.reduce_scatter(send, sum, cuts, queue, tag); },
            [&] {
                ops::HeldSums const none{.rank_group = tree.inside(inner_ranks()).rank_group()};
                std::size_t const group = tree.above(inner_ranks()).rank_group();
                _levels.template scatter<float>(
                    cuts, queue,
                    [&](float* part, std::size_t begin) {
                        _intra->reduce_scatter(send + begin, ops::TreeSum<float>{part, none},
                                               _levels.inner_cuts(), queue, tag);
                    },
                    [&](float const* part, std::size_t begin) {
                        ops::TreeSum<A> own{sum.out + begin, sum.held.from(begin)};
                        own.held.rank_group = group;
                        _inter->reduce_scatter(part, own, _levels.outer_cuts(), queue, tag);
                    });
            });
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        (void)place().all_gather(dtype_of<T>(), send, receive, cuts, tag);
        on_one_or_both([&](auto& level) { level.all_gather(send, receive, cuts, queue, tag); },
                       [&] { gather(send, receive, cuts, queue, tag); });
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        (void)place().all_reduce(dtype_of<T>(), send, receive, cuts, tag);
        on_one_or_both([&](auto& level) { level.all_reduce(send, receive, cuts, queue, tag); },
                       [&] {
                           T* const extent = receive + cuts[static_cast<std::size_t>(rank())];
                           scatter(send, cuts, queue, tag, [&](T const* part, std::size_t begin) {
                               _inter->reduce_scatter(part, extent + begin, _levels.outer_cuts(),
                                                      queue, tag);
                           });
                           gather(static_cast<T const*>(extent), receive, cuts, queue, tag);
                       });
    }

    /// @copydoc reduce_scatter
    /// First between the ranks with the inner rank of the root, then inside.
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        (void)place().broadcast(dtype_of<T>(), buffer, elements, root, tag);
        on_levels([&] {
            int const inner_root = root / _inter->size();
            if (outer_ranks() != 1 && _intra->rank() == inner_root) {
                _inter->broadcast(buffer, elements, root % _inter->size(), queue, tag);
            }
            if (outer_ranks() == 1 || inner_ranks() != 1) {
                _intra->broadcast(buffer, elements, inner_root, queue, tag);
            }
        });
    }

    /// @copydoc reduce_scatter
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {}) {
        (void)place().integers(values, elements, reduction, tag);
        on_each([&](auto& level) {
            level.all_reduce_integers(values, elements, reduction, queue, tag);
        });
    }

    /// @brief See `Communicator`.
    void all_reduce_integers(std::int64_t* values, std::size_t sums, std::size_t minima,
                             Queue queue, CollectiveTag tag = {})
        requires(detail::ReducesIntegersTogether<Intra> && detail::ReducesIntegersTogether<Inter>)
    {
        (void)place().integers(values, sums, minima, tag);
        on_each([&](auto& level) { level.all_reduce_integers(values, sums, minima, queue, tag); });
    }

    /// @brief Aborts both levels of this rank.
    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _intra->abort(cause, is_provisional);
        _inter->abort(cause, is_provisional);
    }

    /// @brief See `Communicator`.
    void rethrow_failure() {
        on_levels([&] {
            detail::rethrow_failure_of(*_intra);
            detail::rethrow_failure_of(*_inter);
        });
    }

    /// @brief See `Communicator`.
    void synchronise() {
        on_levels([&] {
            detail::synchronise_collectives(*_intra);
            detail::synchronise_collectives(*_inter);
        });
    }

    /// @brief See `Communicator`.
    [[nodiscard]] bool shares_process() const noexcept {
        return detail::shares_process(*_intra) || detail::shares_process(*_inter);
    }

    /// @brief See `Communicator`.
    void forget_events() noexcept {
        _levels.forget_events();
        if constexpr (requires { _intra->forget_events(); }) {
            _intra->forget_events();
        }
        if constexpr (requires { _inter->forget_events(); }) {
            _inter->forget_events();
        }
    }

private:
    template <class Level>
    static typename detail::TwoLevels<Backend>::Place place_in(Level const& level) {
        return {static_cast<std::size_t>(level.rank()), static_cast<std::size_t>(level.size())};
    }

    static std::size_t usable(std::size_t bytes) {
        if (bytes < 128) {
            detail::throw_error<InvalidArgument>(
                {"zero: scratch_bytes of a Hierarchical communicator is ", bytes,
                 "; give at least 128."});
        }
        return bytes;
    }

    [[nodiscard]] bool has_two_levels() const noexcept {
        return inner_ranks() != 1 && outer_ranks() != 1;
    }
    [[nodiscard]] detail::GroupPlace place() const noexcept {
        return {static_cast<std::size_t>(rank()), static_cast<std::size_t>(size())};
    }

    /// Calls the levels. An exception of one aborts the other one.
    template <class Body>
    void on_levels(Body const& body) {
        try {
            body();
        } catch (...) {
            detail::report_failure(static_cast<std::size_t>(rank()),
                                   [&](std::string_view cause) { abort(cause); });
            throw;
        }
    }

    /// Calls `body(level)` for the inner level, then for the outer one, but for no level of one
    /// rank if the other has several.
    template <class Body>
    void on_each(Body const& body) {
        on_levels([&] {
            if (outer_ranks() == 1 || inner_ranks() != 1) {
                body(*_intra);
            }
            if (outer_ranks() != 1) {
                body(*_inter);
            }
        });
    }

    /// Calls `one(level)` if that level has all ranks, otherwise `both()`.
    template <class One, class Both>
    void on_one_or_both(One const& one, Both const& both) {
        on_levels([&] {
            if (outer_ranks() == 1) {
                one(*_intra);
            } else if (inner_ranks() == 1) {
                one(*_inter);
            } else {
                both();
            }
        });
    }

    /// Sums inside in rank order, rounded to the element type.
    template <class T, class Last>
    void scatter(T const* send, std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag,
                 Last const& last) {
        _levels.template scatter<T>(
            cuts, queue,
            [&](T* part, std::size_t begin) {
                _intra->reduce_scatter(send + begin, part, _levels.inner_cuts(), queue, tag);
            },
            last);
    }

    template <class T>
    void gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                CollectiveTag tag) {
        T* const part = receive + _levels.gather(cuts);
        _inter->all_gather(send, part, _levels.outer_cuts(), queue, tag);
        _intra->all_gather(static_cast<T const*>(part), receive, _levels.inner_cuts(), queue, tag);
    }

    Intra* _intra;
    Inter* _inter;
    detail::TwoLevels<Backend> _levels;
};

} // namespace ZERO_NAMESPACE
