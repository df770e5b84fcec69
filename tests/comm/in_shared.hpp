#pragma once

#include "support/toy_model.hpp"
#include "values.hpp"

#include <zero/comm/communicator.hpp>
#include <zero/comm/detail/decorator.hpp>
#include <zero/core/buffer.hpp>
#include <zero/host/queue.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace zero::test {

/// @brief Passes collectives on with memory that the peers can read: copies of what the caller
/// gives.
/// @tparam is_mixed whether each rank leaves some of it where it is
template <class C, bool is_mixed>
class InShared : public zero::detail::CommunicatorDecorator<InShared<C, is_mixed>, C> {
    using Base = zero::detail::CommunicatorDecorator<InShared, C>;
    using Queue = typename Base::Queue;
    using Cuts = std::span<std::size_t const>;
    friend Base;

public:
    explicit InShared(C& inner)
        : Base(inner),
          _memory(inner.shared_memory(), std::size_t{4} << 20U, BufferKind::gradient_leases) {}
    ~InShared() { settle(); }

    using Base::all_reduce_integers;

    template <class T>
    void reduce_scatter(T const* send, T* receive, Cuts cuts, Queue queue, CollectiveTag tag = {}) {
        T* const lent = lend(send, cuts.back(), queue);
        bool const is_in_place = receive == send + cuts[own()];
        T* const out = is_in_place ? lent + cuts[own()] : receive;
        this->inner().reduce_scatter(static_cast<T const*>(lent), out, cuts, queue, tag);
        give_back(receive, out, cuts[own() + 1] - cuts[own()], queue);
    }

    template <class T, class A>
    void reduce_scatter(T const* send, A* sum, Cuts cuts, Queue queue, CollectiveTag tag,
                        bool is_added) {
        T const* const lent = lend(send, cuts.back(), queue);
        this->inner().reduce_scatter(lent, sum, cuts, queue, tag, is_added);
        give_back(sum, sum, 0, queue);
    }

    template <class T, class A>
    void reduce_scatter(T const* send, ops::TreeSum<A> const& sum, Cuts cuts, Queue queue,
                        CollectiveTag tag = {}) {
        T const* const lent = lend(send, cuts.back(), queue);
        this->inner().reduce_scatter(lent, sum, cuts, queue, tag);
        give_back(sum.out, sum.out, 0, queue);
    }

    template <class T>
    void all_gather(T const* send, T* receive, Cuts cuts, Queue queue, CollectiveTag tag = {}) {
        bool const is_in_place = send == receive + cuts[own()];
        T* const out = is_in_place ? lend(receive, cuts.back(), queue) : receive;
        T const* const from =
            is_in_place ? out + cuts[own()] : lend(send, cuts[own() + 1] - cuts[own()], queue);
        this->inner().all_gather(from, out, cuts, queue, tag);
        give_back(receive, out, cuts.back(), queue);
    }

    template <class T>
    void exchange(T const* send, T* receive, Cuts cuts, Queue queue, CollectiveTag tag = {}) {
        T const* const lent = lend(send, cuts.back(), queue);
        this->inner().exchange(lent, receive, cuts, queue, tag);
        give_back(receive, receive, 0, queue);
    }

    template <class T>
    void all_reduce(T const* send, T* receive, Cuts cuts, Queue queue, CollectiveTag tag = {}) {
        T* const lent = lend(send, cuts.back(), queue);
        T* const out = receive == send ? lent : lend(receive, cuts.back(), queue);
        this->inner().all_reduce(static_cast<T const*>(lent), out, cuts, queue, tag);
        give_back(receive, out, cuts.back(), queue);
    }

    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        T* const lent = lend(buffer, elements, queue);
        this->inner().broadcast(lent, elements, root, queue, tag);
        give_back(buffer, lent, elements, queue);
    }

private:
    [[nodiscard]] std::size_t own() const { return static_cast<std::size_t>(this->rank()); }

    template <class T, class Forward>
    void around(zero::detail::DecoratedCall const& /*call*/, Queue /*queue*/,
                Forward const& forward) {
        forward();
    }

    /// Returns a copy in memory that the peers read, at any alignment of `T`.
    template <class T>
    T* lend(T const* from, std::size_t elements, Queue queue) {
        std::uint64_t const random = mix(++_serial * 64 + own());
        if (is_mixed && random % 3 == 0) {
            return const_cast<T*>(from);
        }
        std::size_t const bytes = (elements + 64) * sizeof(T);
        if (_used + bytes > _memory.size()) {
            settle();
        }
        auto* const to = reinterpret_cast<T*>(_memory.data() + _used) + random / 3 % 16;
        _used += (bytes + 63) / 64 * 64;
        queue->enqueue([=] { std::copy_n(from, elements, to); });
        return to;
    }

    /// Copies the result, and overwrites what was lent: no peer may read it any more.
    template <class T>
    void give_back(T* to, T const* from, std::size_t elements, Queue queue) {
        std::span<std::byte> const lent(_memory.data() + _given, _used - _given);
        _given = _used;
        queue->enqueue([=] {
            if (to != from) {
                std::copy_n(from, elements, to);
            }
            std::fill(lent.begin(), lent.end(), std::byte{0xa5});
        });
        _done.push_back(queue->record());
    }

    void settle() {
        for (auto const& event : _done) {
            event.synchronise();
        }
        _done.clear();
        _used = 0;
        _given = 0;
    }

    Buffer<std::byte> _memory;
    std::size_t _used = 0;
    std::size_t _given = 0; ///< part that was given back
    std::uint64_t _serial = 0;
    std::vector<host::Event> _done;
};

using ParametersOfStages = std::vector<std::vector<std::vector<float>>>;

/// @brief Trains the toy model in each stage. Returns the parameters, by stage.
template <class C>
ParametersOfStages train_every_stage(C& ranks) {
    ParametersOfStages result;
    auto const train = [&]<int N>(std::integral_constant<int, N>) {
        ZeroStage<N, Parameters<bfloat16>, C> engine(ranks, registration<bfloat16>(toy_specs()),
                                                     {.gradient_clipping = 1.0F});
        auto const rank = static_cast<std::uint64_t>(ranks.rank());
        for (std::uint64_t step = 0; step < 4; ++step) {
            (void)run_step(engine, rank, step, 2);
        }
        result.push_back(full_parameters(engine));
    };
    train(std::integral_constant<int, 0>());
    train(std::integral_constant<int, 1>());
    train(std::integral_constant<int, 2>());
    train(std::integral_constant<int, 3>());
    return result;
}

} // namespace zero::test
