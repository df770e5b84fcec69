#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief Calls `visit` with the element of a tuple that is chosen at run time.
template <std::size_t I = 0, class Tuple, class Visitor>
decltype(auto) visit_at(Tuple& tuple, std::size_t index, Visitor&& visit) {
    if constexpr (I + 1 < std::tuple_size_v<std::remove_cv_t<Tuple>>) {
        if (index != I) {
            return visit_at<I + 1>(tuple, index, visit);
        }
    }
    return visit(std::get<I>(tuple));
}

/// @brief Calls `visit` with every element of a tuple, in order. (`std::apply` is ten functions for
/// each visitor of each engine, and nvcc compiles them for devices as well.)
template <std::size_t I = 0, class Tuple, class Visitor>
void visit_all(Tuple& tuple, Visitor&& visit) {
    visit(std::get<I>(tuple));
    if constexpr (I + 1 < std::tuple_size_v<std::remove_cv_t<Tuple>>) {
        visit_all<I + 1>(tuple, visit);
    }
}

/// @brief Owns one `Store<Config, Types>` for each parameter type of a model and finds the one that
/// holds a bucket.
///
/// The engine and its schedulers are written once for all types: they decide by bucket, and this
/// class passes each call on to the store of the bucket's type.
template <class Config, template <class, class> class Store>
class StoresByType {
public:
    /// @param layout must outlive this object
    /// @param context_of `context_of.template operator()<Types>(type)` returns the constructor
    /// argument of the store of a type
    template <class ContextOf>
    StoresByType(FlatLayout const& layout, ContextOf const& context_of)
        : StoresByType(layout, context_of, std::make_index_sequence<Config::types>()) {}

    /// @brief The store of one type.
    template <class Types>
    [[nodiscard]] Store<Config, Types> const& get() const noexcept {
        return std::get<Store<Config, Types>>(_stores);
    }

    /// @brief Calls `visit` with the store of a type.
    template <class Visitor>
    decltype(auto) of_type(std::size_t type, Visitor&& visit) {
        return visit_at(_stores, type, visit);
    }

    template <class Visitor>
    decltype(auto) of_type(std::size_t type, Visitor&& visit) const {
        return visit_at(_stores, type, visit);
    }

    /// @brief Calls `visit` with the store of a bucket.
    template <class Visitor>
    decltype(auto) of_bucket(std::size_t bucket, Visitor&& visit) {
        return visit_at(_stores, _layout->bucket(bucket).type, visit);
    }

    template <class Visitor>
    decltype(auto) of_bucket(std::size_t bucket, Visitor&& visit) const {
        return visit_at(_stores, _layout->bucket(bucket).type, visit);
    }

    /// @brief Calls `visit` with the store of a parameter.
    template <class Visitor>
    decltype(auto) of_parameter(std::size_t parameter, Visitor&& visit) const {
        return visit_at(_stores, _layout->parameter(parameter).type, visit);
    }

    template <class Visitor>
    decltype(auto) of_parameter(std::size_t parameter, Visitor&& visit) {
        return visit_at(_stores, _layout->parameter(parameter).type, visit);
    }

    /// @brief Calls `visit` with every store.
    template <class Visitor>
    void each(Visitor&& visit) {
        visit_all(_stores, visit);
    }

    template <class Visitor>
    void each(Visitor&& visit) const {
        visit_all(_stores, visit);
    }

    /// @brief Bytes of the tables in the backend's memory.
    [[nodiscard]] std::size_t table_bytes() const {
        std::size_t bytes = 0;
        each([&](auto const& store) { bytes += store.table_bytes(); });
        return bytes;
    }

private:
    template <class ContextOf, std::size_t... Type>
    [[gnu::cold]] StoresByType(FlatLayout const& layout, ContextOf const& context_of,
                               std::index_sequence<Type...>)
        : _layout(&layout),
          _stores(
              context_of.template operator()<typename Config::template TypesAt<Type>>(Type)...) {}

    FlatLayout const* _layout;
    typename Config::template ForTypes<Store> _stores;
};

} // namespace ZERO_NAMESPACE::detail
