#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE::torch::detail {

/// @brief The calls of an engine that `UnitRunner` makes, without the engine's types. `Sharded`
/// implements it.
class UnitEngine {
public:
    UnitEngine() = default;
    UnitEngine(UnitEngine const&) = delete;
    UnitEngine& operator=(UnitEngine const&) = delete;

    /// @brief Acquires a unit, and sets the address of each of its parameters.
    virtual void acquire(std::size_t unit, std::vector<void*>& addresses) = 0;
    virtual void release(std::size_t unit) noexcept = 0;

    /// @brief Leases the gradients of a unit; a frozen parameter gets no address.
    virtual void lease(std::size_t unit, std::vector<void*>& addresses) = 0;
    virtual void ready(std::size_t unit) = 0;

    /// @brief Returns the number of extra leases with which the gradients of all units may be lent
    /// at once.
    [[nodiscard]] virtual std::size_t leases_of_all() const noexcept = 0;

protected:
    ~UnitEngine() = default;
};

} // namespace ZERO_NAMESPACE::torch::detail
