#pragma once

// Stands for thrust::transform of two ranges on the emulated device.

#include "execution_policy.h"

#include <algorithm>

namespace thrust {

template <class From, class Other, class To, class Operation>
To transform(cuda::OnStream const& policy, From first, From last, Other other, To to,
             Operation operation) {
    zero::test::emulated::enqueue(policy.stream,
                                  [=] { std::transform(first, last, other, to, operation); });
    return to + (last - first);
}

} // namespace thrust
