// Includes nothing of the library: zero::pch does.

#include <cstdio>

int main() {
    std::printf("zero %d.%d.%d\n", zero::version_major, zero::version_minor, zero::version_patch);
}
