#pragma once

#include "../core/detail/namespace.hpp"
#include "linked_nccl.hpp"
#include "linked_system.hpp"
#include "nccl_communicator.hpp"
#include "nccl_library.hpp"
#include "nccl_options.hpp"

#include <nccl.h>

#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::cuda {

/// @brief Returns the NCCL and the system that every communicator of the program shares.
inline NcclInterface linked_nccl() noexcept {
    static LinkedNccl nccl;
    static LinkedSystem system;
    return {&nccl, &system};
}

/// @brief `BasicNcclCommunicator` over the linked NCCL, with NCCL's own types. `cuda/nccl.cuh`
/// names it `NcclCommunicator` for the CUDA backend.
///
/// @code
///     // one process per device, started by torchrun
///     auto communicator = zero::cuda::NcclCommunicator::from_environment();
///     Zero engine(communicator, parameters, options);
/// @endcode
template <class B>
class NcclCommunicatorOn : public BasicNcclCommunicator<B> {
    using Base = BasicNcclCommunicator<B>;

public:
    /// @copydoc BasicNcclCommunicator::refer_to
    static NcclCommunicatorOn refer_to(ncclComm_t comm, NcclOptions const& options = {}) {
        return Base::refer_to(linked_nccl(), comm, options);
    }

    /// @copydoc BasicNcclCommunicator::take_over
    static NcclCommunicatorOn take_over(ncclComm_t comm, NcclOptions const& options = {}) {
        return Base::take_over(linked_nccl(), comm, options);
    }

    /// @brief Makes the id of a new group. One rank calls it and sends the id to all others.
    /// @throws NcclError
    static ncclUniqueId make_unique_id() {
        return __builtin_bit_cast(ncclUniqueId, cuda::make_unique_id(linked_nccl()));
    }

    /// @copydoc BasicNcclCommunicator::from_unique_id
    static NcclCommunicatorOn from_unique_id(ncclUniqueId const& id, int rank, int world,
                                             NcclOptions const& options = {}) {
        return Base::from_unique_id(linked_nccl(), __builtin_bit_cast(NcclUniqueId, id), rank,
                                    world, options);
    }

    /// @copydoc BasicNcclCommunicator::from_environment
    static NcclCommunicatorOn from_environment(NcclOptions const& options = {}) {
        return Base::from_environment(linked_nccl(), options);
    }

    /// @copydoc BasicNcclCommunicator::make_group
    static std::vector<NcclCommunicatorOn> make_group(std::span<int const> devices,
                                                      NcclOptions const& options = {}) {
        auto group = Base::make_group(linked_nccl(), devices, options);
        std::vector<NcclCommunicatorOn> ranks;
        ranks.reserve(group.size());
        for (Base& rank : group) {
            ranks.push_back(NcclCommunicatorOn(std::move(rank)));
        }
        return ranks;
    }

    /// @copydoc BasicNcclCommunicator::split
    [[nodiscard]] NcclCommunicatorOn split(int color, int key) { return Base::split(color, key); }

    /// @brief Returns NCCL's communicator; null after an abort, which frees it.
    [[nodiscard]] ncclComm_t handle() const noexcept {
        return static_cast<ncclComm_t>(Base::handle());
    }

private:
    NcclCommunicatorOn(Base&& base) noexcept : Base(std::move(base)) {}
};

} // namespace ZERO_NAMESPACE::cuda
