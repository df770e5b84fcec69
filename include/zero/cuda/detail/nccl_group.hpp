#pragma once

#include "../../core/detail/namespace.hpp"
#include "../nccl_library.hpp"

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Joins several calls into one operation of NCCL, from `start` to `end`.
///
/// Callers check arguments beforehand, so only NCCL itself can fail inside. If an exception leaves
/// the group, the destructor first closes it, because the group would swallow all further calls of
/// this thread. It then aborts the communicators, because peers may have started the calls that
/// were issued. The order matters: inside the group NCCL would defer an abort, and drop it together
/// with the group.
class NcclGroup {
public:
    /// @param abort called with `argument` if an exception leaves the group; must not throw
    NcclGroup(NcclLibrary& nccl, void (*abort)(void*), void* argument) noexcept
        : _nccl(&nccl), _abort(abort), _argument(argument) {}
    NcclGroup(NcclGroup const&) = delete;
    NcclGroup& operator=(NcclGroup const&) = delete;

    ~NcclGroup() {
        if (_is_open) {
            _nccl->group_end();
            _abort(_argument);
        }
    }

    [[nodiscard]] NcclResult start() noexcept {
        NcclResult const result = _nccl->group_start();
        _is_open = result == NcclResult::success;
        return result;
    }

    [[nodiscard]] NcclResult end() noexcept {
        _is_open = false;
        return _nccl->group_end();
    }

private:
    NcclLibrary* _nccl;
    void (*_abort)(void*);
    void* _argument;
    bool _is_open = false;
};

} // namespace ZERO_NAMESPACE::cuda::detail
