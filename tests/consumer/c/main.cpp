// Uses zero::c as a C program does.

#include <zero_c.h>

#include <cstdio>

int main() {
    auto const body = [](zero_communicator* communicator, void*) -> int {
        float value = static_cast<float>(zero_rank(communicator));
        zero_status const status = zero_sum(communicator, &value, 1);
        return status == ZERO_OK && value == 3.0F ? 0 : 1;
    };
    if (zero_run_ranks(3, 0.0, body, nullptr) != ZERO_OK) {
        std::puts(zero_last_error());
        return 1;
    }
    std::printf("zero %s\n", zero_version());
}
