#pragma once

#include <zero/comm/detail/decorator.hpp>

#include <cstddef>
#include <span>

namespace zero::test {

/// Hides from engines that a communicator reads pieces where they lie, so that they copy gradients
/// as over communicators that do not.
template <class C>
class WithoutPieces : public zero::detail::CommunicatorDecorator<WithoutPieces<C>, C> {
    using Base = zero::detail::CommunicatorDecorator<WithoutPieces, C>;
    friend Base;

public:
    using Inner = C;

    explicit WithoutPieces(C& inner) : Base(inner) {}

    using Base::reduce_scatter;
    template <class T, class A>
        requires zero::detail::ReduceScattersPieces<C, T, A>
    void reduce_scatter(SentPieces<T>, A*, std::span<std::size_t const>, typename Base::Queue,
                        CollectiveTag, bool) = delete;

private:
    template <class T, class Forward>
    void around(zero::detail::DecoratedCall const& /*call*/, typename Base::Queue /*queue*/,
                Forward const& forward) {
        forward();
    }
};

} // namespace zero::test
