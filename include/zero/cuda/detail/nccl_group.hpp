#pragma once

#include "../../core/detail/namespace.hpp"
#include "../nccl_library.hpp"

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Several calls as one operation of NCCL, between its construction and `end`.
///
/// What is called inside has been checked before, so that only NCCL itself can fail there. Left by
/// an exception it closes the group, or all further calls of this thread would be swallowed by it,
/// and then has the communicators aborted, since peers may have begun the part that was issued. The
/// order matters: NCCL would put off an abort inside the group, and drop it with the group.
class NcclGroup {
public:
    /// @param abort called with `argument` when the group is left by an exception; must not throw
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
