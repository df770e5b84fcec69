#include <cstdio>

#include <zero/zero.hpp>

int main() {
    std::printf("zero %d.%d.%d\n", zero::version_major, zero::version_minor, zero::version_patch);
}
