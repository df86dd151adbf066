/* Preloaded into a program, sends what it asks the kernel about one interface by netlink to a socket of ours, and gives
 * it the answers. All else goes to the kernel. COLDPLATE_NETLINK_DEVICE names the interface, COLDPLATE_NETLINK_SOCKET the
 * path of the socket, which keeps the bounds of messages (SOCK_SEQPACKET).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#define SOCKETS 64
static int ours[SOCKETS];     /* for each socket of the program, one of ours plus 1 */
static int answering[SOCKETS]; /* whether ours answers what was asked last */

static int connect_ours(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, getenv("COLDPLATE_NETLINK_SOCKET"), sizeof address.sun_path - 1);
    int made = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    return made < 0 || connect(made, (struct sockaddr *)&address, sizeof address) ? -1 : made;
}

ssize_t sendto(int fd, const void *data, size_t length, int flags, const struct sockaddr *to, socklen_t size) {
    ssize_t (*real)(int, const void *, size_t, int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "sendto");
    const char *device = getenv("COLDPLATE_NETLINK_DEVICE");
    int is_netlink = to && to->sa_family == AF_NETLINK && fd >= 0 && fd < SOCKETS;
    if (is_netlink) answering[fd] = device && memmem(data, length, device, strlen(device) + 1) != NULL;
    if (!is_netlink || !answering[fd]) return real(fd, data, length, flags, to, size);
    if (!ours[fd]) ours[fd] = connect_ours() + 1;
    return ours[fd] ? send(ours[fd] - 1, data, length, 0) : -1;
}

ssize_t recvmsg(int fd, struct msghdr *into, int flags) {
    ssize_t (*real)(int, struct msghdr *, int) = dlsym(RTLD_NEXT, "recvmsg");
    if (fd < 0 || fd >= SOCKETS || !answering[fd]) return real(fd, into, flags);
    ssize_t got = readv(ours[fd] - 1, into->msg_iov, into->msg_iovlen);
    if (got == 0) {
        errno = ECONNRESET;
        return -1;
    }
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    if (into->msg_name && into->msg_namelen >= sizeof kernel) memcpy(into->msg_name, &kernel, sizeof kernel);
    into->msg_namelen = sizeof kernel;
    into->msg_controllen = 0;
    into->msg_flags = 0;
    return got;
}
