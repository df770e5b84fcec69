#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"
#include "../master_form.hpp"

#include <concepts>
#include <type_traits>

/// @file
/// @brief The requirements of `MasterWeightsPolicy`, one concept each. The concept and its messages
/// use them.

namespace ZERO_NAMESPACE::detail {

template <class P>
concept MasterWeightsHaveOptions = requires { typename P::Options; };

template <class P>
concept MasterWeightsHaveType = requires { typename P::Type; };

template <class P>
concept MasterWeightsHaveForm = std::same_as<decltype(P::form), MasterForm const>;

/// A copy has a type; the other forms have none.
template <class P>
concept MasterTypeFitsForm = (P::form == MasterForm::copied && StorageType<typename P::Type>)
                             || (P::form != MasterForm::copied && std::is_void_v<typename P::Type>);

} // namespace ZERO_NAMESPACE::detail
